package redisfail

import (
	"errors"
	"fmt"
)

var (
	// ErrLate is the outcome of a call that reached the server after its not-after time and wrote nothing.
	ErrLate = NewTimeout("lockdog: timeout: the call reached Redis too late and wrote nothing")
	// ErrElsewhere is the outcome of a renewal that was addressed to a server where its lock no longer lives. Nothing was sent.
	ErrElsewhere = errors.New("lockdog: the lock lives on another server by now")
	// ErrClosed is the outcome of a call after Client.Close.
	ErrClosed = errors.New("lockdog: client closed")
)

// ReplyError is an error reply that a script returned as a string, for one of several locks.
type ReplyError string

// Error implements error.
func (e ReplyError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (ReplyError) RedisError() {}

// PanicError is the outcome of a call during which a panic was recovered. Whether the call was sent isn't known.
type PanicError struct{ Value any }

// Error implements error.
func (e *PanicError) Error() string {
	return fmt.Sprint("lockdog: a panic on the way to Redis: ", e.Value)
}

// NewTimeout returns an error that is a net.Error, so that it is classified like go-redis's own timeouts.
func NewTimeout(text string) error { return &timeoutError{text} }

type timeoutError struct{ text string }

func (e *timeoutError) Error() string   { return e.text }
func (e *timeoutError) Timeout() bool   { return true }
func (e *timeoutError) Temporary() bool { return true }
