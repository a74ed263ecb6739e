//go:build debugpage

package main

import (
	"net/http"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
)

func init() {
	pages = func(locks *lock.Client) {
		http.Handle("/debug/locks", lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{locks}}))
	}
}
