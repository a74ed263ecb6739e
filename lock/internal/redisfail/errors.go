package redisfail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
)

var (
	// ErrLate is the outcome of a call that reached the server after its not-after and wrote nothing.
	ErrLate = NewTimeout("lockdog: timeout: the call reached Redis too late and wrote nothing")
	// ErrElsewhere is the outcome of a renewal, or of connecting, at a server where the lock no longer lives. Nothing
	// was sent, or the server was replaced during the call.
	ErrElsewhere = errors.New("lockdog: the lock lives on another server by now")
	// ErrLost is matched by the error of a lost lease. Why that lease was lost says nothing about a call that its loss
	// ends.
	ErrLost = errors.New("lockdog: lease lost")
	// ErrClosed is the outcome of a call that came after Client.Close, or that Close ended.
	ErrClosed = errors.New("lockdog: client closed")
)

// ReplyError is an error reply that a script returned as a string, for one of several locks.
type ReplyError string

// Error implements error.
func (e ReplyError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (ReplyError) RedisError() {}

// PanicError is the outcome of a call during which a panic was recovered. The call may have been sent.
type PanicError struct{ Value any }

// Error implements error.
func (e *PanicError) Error() string {
	return fmt.Sprint("lockdog: a panic on the way to Redis: ", e.Value)
}

// DeniedError is the outcome of a call that the Limiter of the program's client seems to have denied. go-redis returns
// a Limiter's error unchanged, so every error of unknown origin counts as one. A hook may have made it, so the call may
// have been sent.
type DeniedError struct{ Err error }

// Error implements error.
func (e *DeniedError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the Limiter.
func (e *DeniedError) Unwrap() error { return e.Err }

// Denied returns err, as a DeniedError if its origin is unknown.
func Denied(err error) error {
	var ne net.Error
	if err == nil || Classify(err) != onTheWay || errors.As(err, &ne) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.Canceled) {
		return err
	}
	return &DeniedError{err}
}

// RetriedError is the error of a call that was tried again. It is classified like Last: that the server refused an
// earlier try doesn't mean that the last one ran nothing.
type RetriedError struct{ Last, Before error }

// Error implements error.
func (e *RetriedError) Error() string { return fmt.Sprintf("%v, after: %v", e.Last, e.Before) }

// Unwrap returns both errors.
func (e *RetriedError) Unwrap() []error { return []error{e.Last, e.Before} }

// lastOf returns the error of the last try if err is a RetriedError, otherwise err.
func lastOf(err error) error {
	if e := (*RetriedError)(nil); errors.As(err, &e) {
		return e.Last
	}
	return err
}

// NewTimeout returns a net.Error, so that it is classified like the timeouts of go-redis.
func NewTimeout(text string) error { return &timeoutError{text} }

type timeoutError struct{ text string }

func (e *timeoutError) Error() string   { return e.text }
func (e *timeoutError) Timeout() bool   { return true }
func (e *timeoutError) Temporary() bool { return true }
