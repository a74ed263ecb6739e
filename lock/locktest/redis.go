package locktest

import (
	"context"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// addr is the address of every server. It has no port, because lock.NewQuorum rejects clients with the same host:port.
const addr = "fake"

// open starts the server if it isn't open. It serves until Close.
func (s *Server) open() {
	s.helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.admin != nil {
		return
	}
	if err := s.fake.Open(refuseCutOff); err != nil {
		s.fatalf("locktest: %v", err)
	}
	s.admin = s.connect()
	s.conns = append(s.conns, s.admin)
}

// connect returns a go-redis client for the server.
func (s *Server) connect() *redis.Client {
	o := fakeredis.Options().Simple()
	o.Addr, o.Dialer = addr, s.fake.Dial
	return redis.NewClient(o)
}

// holder returns an owner that holds a name, "" if the key is free or holds no lock.
func (s *Server) holder(name string) string {
	fields, _ := s.fake.HKeys(name)
	for _, f := range fields {
		if f != script.MetaField && f != "mode" {
			owner, _ := script.CutReleased(f)
			return owner
		}
	}
	return ""
}

// holds reports whether Redis has an owner at its place, in a hash or a sorted set.
func (s *Server) holds(p place) bool {
	if s.fake.HGet(p.key, p.member) != "" {
		return true
	}
	expiry, _ := s.fake.ZScore(p.key, p.member)
	return expiry > 0
}

// listens waits until an owner's client has subscribed to its control channel, for messages about its locks. It returns
// the channel, "" if there is none after a second. The client subscribes with its first lock.
func (s *Server) listens(owner string) (channel string) {
	id, random := script.ClientOf(owner)
	for range 1000 { // a client that was closed in the meantime never subscribes
		for _, channel := range s.fake.PubSubChannels("") {
			if strings.HasSuffix(channel, "lockdog:control:"+id+":"+random) {
				return channel
			}
		}
		time.Sleep(time.Millisecond)
	}
	return ""
}

// cutOffKey is the prefix that cut puts before the keys of holds that are cut off.
const cutOffKey = "locktest:cut off:"

// cut changes the keys of a renewal so that the server rejects the holds that are cut off. It doesn't change the key of
// a hold that has been lost in another way, so that the renewal detects that loss.
func (s *Server) cut(renewal redis.Cmder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	args := renewal.Args()
	for i := range len(args) - 1 {
		key, _ := args[i].(string)
		member, _ := args[i+1].(string)
		if p := (place{key, member}); s.cutOff[p] && s.holds(p) {
			args[i] = cutOffKey + key
		}
	}
}

// refuseCutOff rejects commands for keys with the prefix cutOffKey. The server calls it before each command, including
// those of scripts.
func refuseCutOff(p *server.Peer, _ string, args ...string) (done bool) {
	if len(args) == 0 || !strings.HasPrefix(args[0], cutOffKey) {
		return false
	}
	p.WriteError("ERR locktest: this lease can't be renewed any more")
	return true
}

// The scripts of Hold and Lose.
const (
	holdIt = `
		if redis.call('exists', KEYS[1]) == 1 then
			return 0
		end
		redis.call('hset', KEYS[1], ARGV[1], '1', '@lockdog', '')
		return redis.call('pexpire', KEYS[1], ARGV[2])`
	renewIt = `
		return redis.call('hexists', KEYS[1], ARGV[1]) == 1 and redis.call('pexpire', KEYS[1], ARGV[2])`
	releaseIt = `
		return redis.call('hexists', KEYS[1], ARGV[1]) == 1 and redis.call('del', KEYS[1])`
	takeIt = `
		local left = redis.call('pttl', KEYS[1])
		local taken = {ARGV[1], '1', '@lockdog', ''}
		if redis.call('hexists', KEYS[1], 'mode') == 1 then
			taken = {'mode', 'write', ARGV[1] .. ':write', '1'}
		end
		if redis.call('del', KEYS[1]) == 1 then
			redis.call('hset', KEYS[1], unpack(taken))
			redis.call('pexpire', KEYS[1], left)
		end`
)

// release releases a lock of Hold, and wakes all its waiters, which listen on the lock's channel, or on their client's
// own channel for the lock.
func (s *Server) release(name, owner string) {
	if !s.eval(releaseIt, name, owner) {
		return
	}
	for _, channel := range s.fake.PubSubChannels("") {
		base := script.Channel(name)
		if channel == base || strings.HasPrefix(channel, base+":") {
			s.fake.Publish(channel, "0")
		}
	}
}

// eval runs one of these scripts, and reports whether it returns 1.
func (s *Server) eval(source, name string, args ...any) bool {
	s.mu.Lock()
	admin := s.admin
	s.mu.Unlock()
	if admin == nil {
		return false
	}
	n, _ := admin.Eval(context.Background(), source, []string{name}, args...).Int()
	return n == 1
}
