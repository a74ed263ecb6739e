package connect

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// parse parses an address: redis[s]://[user[:password]@]host[:port][,host[:port]...][/db][?db=n], the same without
// redis://, unix://[user[:password]@]/path[?db=n], or the path of a Unix socket. Package url doesn't parse addresses
// with several hosts. Errors quote no part of the text: any part may belong to a password that isn't escaped as in a
// URL.
func parse(text string) (o *redis.UniversalOptions, withPassword bool, err error) {
	scheme, rest, ok := strings.Cut(text, "://")
	switch scheme = strings.ToLower(scheme); {
	case !ok && strings.HasPrefix(text, "/"):
		return &redis.UniversalOptions{Addrs: []string{text}}, false, nil
	case !ok && (strings.HasPrefix(text, ".") || strings.HasPrefix(text, "~") || strings.HasSuffix(text, ".sock")):
		return nil, false, usagef("the path of a Unix socket must begin with /, as in /run/redis.sock")
	case !ok:
		scheme, rest = "redis", text
	case scheme != "redis" && scheme != "rediss" && scheme != "unix":
		return nil, false, usagef("the address begins with none of redis://, rediss:// and unix://")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, _, _ := strings.Cut(rest, "/")
	path := rest[len(authority):]
	if strings.Contains(path+query, "@") || strings.Contains(rest+query, "#") {
		return nil, false, usagef(
			"the address has a character at a wrong place; in a password write / ? # @ %% as %%2F %%3F %%23 %%40 %%25, or put the password into $%s",
			EnvPassword)
	}
	o = &redis.UniversalOptions{}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		var user, password string
		user, password, withPassword = strings.Cut(authority[:at], ":")
		authority = authority[at+1:]
		var err1, err2 error
		o.Username, err1 = url.PathUnescape(user)
		o.Password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return nil, false, usagef("in the user and the password of an address write %% as %%25")
		}
	}
	if o.DB, o.TLSConfig, err = parseOptions(scheme, query); err != nil {
		return nil, false, err
	}
	if scheme == "unix" {
		if authority != "" || len(path) < 2 {
			return nil, false, usagef("the address of a Unix socket must be unix:// and a path that begins with /")
		}
		o.Addrs = []string{path}
		return o, withPassword, nil
	}
	for host := range strings.SplitSeq(authority, ",") {
		addr, err := hostPort(host, authority == "")
		if err != nil {
			return nil, false, err
		}
		o.Addrs = append(o.Addrs, addr)
	}
	if path = strings.TrimPrefix(path, "/"); path != "" {
		if o.DB, err = strconv.Atoi(path); err != nil || o.DB < 0 {
			return nil, false, usagef("what follows the host in the address must be the number of a database, such as /2")
		}
	}
	return o, withPassword, nil
}

// parseOptions parses the text after '?', as go-redis does. It returns the options for db and TLS; the others are for
// programs.
func parseOptions(scheme, query string) (db int, cfg *tls.Config, err error) {
	base := scheme + "://127.0.0.1/?"
	if scheme == "unix" {
		base = scheme + ":///s?"
	}
	one, err := redis.ParseURL(base + query)
	if err != nil || one.DB < 0 {
		return 0, nil, usagef("what follows ? in the address is nothing that go-redis knows, such as db=2")
	}
	if one.TLSConfig != nil {
		one.TLSConfig.ServerName = "" // not 127.0.0.1: go-redis takes the name of each node
	}
	return one.DB, one.TLSConfig, nil
}

// hostPort parses host[:port]. alone means that the address has no host at all. In that case, and before a port, a
// missing host is 127.0.0.1. An IPv6 address with a port must have brackets.
func hostPort(text string, alone bool) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, ""
		if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
			host = strings.TrimSuffix(inner, "]")
		}
	}
	port = cmp.Or(port, "6379")
	if host == "" && (alone || strings.HasPrefix(text, ":")) {
		host = "127.0.0.1"
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if strings.Contains(host, ":") && err == nil {
		_, err = netip.ParseAddr(host) // IPv6, perhaps with a zone
	}
	if err != nil || n == 0 || host == "" || strings.ContainsAny(host, "[] \t\n") {
		return "", usagef("an address in the list of hosts isn't host, host:port, or [IPv6]:port")
	}
	return net.JoinHostPort(host, port), nil
}
