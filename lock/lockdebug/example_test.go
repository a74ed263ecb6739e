package lockdebug_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
	"github.com/lockdog/lockdog/lock/locktest"
)

// The page beside pprof's, and what a script may want of it.
func ExampleHandler() {
	srv := locktest.New(nil) // in memory; a program has lock.New(rdb)
	defer srv.Close()
	http.Handle("/debug/locks", lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{srv.Client()}}))

	err := srv.Client().Mutex("order:42").Do(context.Background(), func(context.Context, *lock.Lease) error {
		rec := httptest.NewRecorder()
		http.DefaultServeMux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/debug/locks?format=json&per=1", nil))
		var page struct {
			Held struct {
				Items []struct{ Name, State string }
			}
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &page); err != nil {
			return err
		}
		fmt.Println(page.Held.Items)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	// Output:
	// [{order:42 held}]
}
