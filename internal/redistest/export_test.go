package redistest

import "context"

// Poll lets the external tests wait the way the package does.
func Poll(try func() error) error {
	return poll(func(context.Context) error { return try() })
}
