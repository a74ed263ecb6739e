package wire

import (
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Options reads an address: host:port, or a URL like redis://user:password@host:6379/0.
func Options(addr string) (*redis.Options, error) {
	if strings.Contains(addr, "://") {
		return redis.ParseURL(addr)
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, errors.New("want host:port or a redis:// URL")
	}
	return &redis.Options{Addr: addr}, nil
}
