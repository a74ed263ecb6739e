package redisfail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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

// DeniedError is the outcome of a call that the Limiter of the program's client seems to have denied: go-redis returns its error as it is, and the
// error is of nobody else that is known. Whether the call was sent isn't certain, as a hook may have made the error.
type DeniedError struct{ Err error }

// Error implements error.
func (e *DeniedError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the Limiter.
func (e *DeniedError) Unwrap() error { return e.Err }

// Denied returns err, as a DeniedError if it is neither a server's nor of the way there.
func Denied(err error) error {
	var ne net.Error
	if err == nil || Classify(err) != onTheWay || errors.As(err, &ne) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.Canceled) {
		return err
	}
	return &DeniedError{err}
}

// NewTimeout returns an error that is a net.Error, so that it is classified like go-redis's own timeouts.
func NewTimeout(text string) error { return &timeoutError{text} }

type timeoutError struct{ text string }

func (e *timeoutError) Error() string   { return e.text }
func (e *timeoutError) Timeout() bool   { return true }
func (e *timeoutError) Temporary() bool { return true }
