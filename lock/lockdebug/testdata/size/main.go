// A program with locks that serves HTTP. With the tag debugpage it also serves the page. A test compares the sizes with
// and without the tag.
package main

import (
	"log"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
)

var pages func(*lock.Client) // set with the tag debugpage

func main() {
	locks, err := lock.New(redis.NewClient(&redis.Options{Addr: "localhost:6379"}))
	if err != nil {
		log.Fatal(err)
	}
	if pages != nil {
		pages(locks)
	}
	log.Fatal(http.ListenAndServe("localhost:6060", nil)) //nolint:gosec // it never runs
}
