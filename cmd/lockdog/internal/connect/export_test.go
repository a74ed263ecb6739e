package connect

import "github.com/redis/go-redis/v9"

// ClientOptions are the options, before it is known what is there.
func (f *Flags) ClientOptions() (*redis.UniversalOptions, error) { return f.options() }
