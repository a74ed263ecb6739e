package memory_test

import (
	"regexp"
	"testing"
)

// sources are scripts that both sides run; $ is the prefix of their keys.
var sources = []string{
	// What a script returns.
	`return`, `return nil`, `return true`, `return false`, `return 7`, `return -7`, `return 3.99`, `return -3.99`, `return 'x'`, `return ''`,
	`return 9007199254740993`, `return 1e300`, `return -1e300`, `return 1/0`, `return 0/0`, `return function() end`,
	`return {}`, `return {1, 'x', true, 2.5, {3, {}}}`, `return {1, nil, 2}`, `return {1, false, 2}`, `return {function() end, 5}`,
	`return {ok = 'FINE'}`, `return {err = 'My mistake'}`, `return {err = 5}`, `return {ok = 5, 1}`, `return {1, {err = 'My mistake'}, {ok = 'FINE'}, 2}`,
	`local t = {2}; t.err = 'x y'; t.ok = 'z'; return t`, `return 1, 2`, `return {[0] = 1, [2] = 2}`, `return KEYS`, `return ARGV`, `return #KEYS + #ARGV`,

	// What a command replies in Lua.
	`return type(redis.call('get', KEYS[1]))`, `return redis.call('get', KEYS[1]) or 'none'`, `return redis.call('set', KEYS[1], 'x').ok`,
	`return redis.call('set', KEYS[1], 'x')`, `return redis.call('hgetall', KEYS[1])`, `return #redis.call('lrange', KEYS[1], 0, -1)`,
	`return type(redis.call('lpop', KEYS[1], 2))`, `return redis.call('EXISTS', KEYS[1]) + 1`, `return redis.call('exists', KEYS[1]) == 0`,
	`redis.call('zadd', KEYS[1], 1.5, 'm'); return redis.call('zscore', KEYS[1], 'm') * 2`,
	`redis.call('rpush', KEYS[1], 'a', 'b'); local l = redis.call('lrange', KEYS[1], 0, -1); return {#l, l[1], l[3] == nil}`,
	`return type(redis.call('time')[1]) .. #redis.call('time')`, `return redis.status_reply('FINE')`, `return redis.status_reply(1)`,
	`return redis.error_reply('My mistake')`, `return redis.error_reply('mistake')`, `return redis.error_reply('-MY mistake')`, `return redis.error_reply('-mistake')`,
	`return redis.error_reply()`, `return redis.error_reply('a b', 1)`, `return type(redis.nosuch)`,

	// Numbers as arguments.
	`for i, n in ipairs({0, 1, -1, 1.5, 0.1, -0.0, 1e15, 1e16, 1e17, 1e18, 2^53, 1697000000000001, 1697000000000001.5, 123456789.123, 1e-5, 1e100, 1/0, -1/0, 0/0}) do
	   redis.call('rpush', KEYS[1], n) end return redis.call('lrange', KEYS[1], 0, -1)`,
	`redis.call('set', KEYS[1], 5); return {redis.call('incrby', KEYS[1], 2), redis.call('get', KEYS[1])}`,
	`return redis.call('incrby', KEYS[1], 1.5)`, `return redis.call('incrby', KEYS[1], 2^60)`,

	// Errors, raised and returned.
	`return redis.call('nosuch')`, `return redis.pcall('nosuch')`, `return redis.pcall('nosuch').err`, `return redis.call('get')`, `return redis.pcall('get')`,
	`return redis.call()`, `return redis.pcall()`, `return redis.call({})`, `return redis.call('get', true)`, `return redis.pcall('get', nil)`, `return redis.call(nil)`,
	`redis.call('set', KEYS[1], 'x'); return redis.call('hget', KEYS[1], 'f')`, "\n\nlocal x = 1\nreturn {redis.call('incr', KEYS[1], x)}",
	`redis.call('set', KEYS[1], 'x'); return redis.pcall('hget', KEYS[1], 'f').err`, "local function f()\n return {redis.call('nosuch')} end\n\n f()",
	`redis.call('set', KEYS[1], 'x'); local e = redis.pcall('incr', KEYS[1]); return e`, `return {redis.pcall('nosuch'), 1}`,
	`local ok, e = pcall(redis.call, 'nosuch'); return {tostring(ok), type(e), e}`, `local ok, e = pcall(error, {err = 'My mistake'}); return e`,
	`local ok, e = pcall(error, {1}); return e`, `local ok, e = pcall(function() return 1 end); return {tostring(ok), e}`, `return {pcall(redis.call, 'exists', 'none')}`,
	`return select(2, pcall(function() error('x') end))`, `return select(2, pcall(error, 'x', 0))`,
	`error('a mistake')`, `error('a mistake', 0)`, `error({err = 'My mistake'})`, "\nerror('x')", `assert(false, 'no')`, `assert(nil)`, `return assert(5)`,
	"pcall(error, 'x')\nreturn redis.call('nosuch')", "pcall(redis.call, 'nosuch')\n\nreturn {redis.call('nosuch')}",

	// What scripts must not touch.
	`x = 1`, `return x`, `string = 1`, `string.x = 1`, `KEYS = 1`, `redis.call = 1`, `redis.x = 1`, `function f() end`, `return _G.x`, `_G.x = 1`, `return os`, `return print`,
	`KEYS[1] = 'mine'; ARGV[5] = 'x'; return {KEYS[1], #ARGV}`, `local x = KEYS; return x[9]`, `return type(_G)`, `return _VERSION`,

	// The library, where the interpreter has its own mind.
	`return {tostring(1697000000000001), tostring(1e14), tostring(123456789012345), tostring(12345678901234), tostring(0.1), tostring(1/3), tostring(2^53), tostring(100), tostring(-0.0)}`,
	`return {tostring(1/0), tostring(-1/0), tostring(nil), tostring(true), tostring('x'), tostring(1e-5), tostring(0.0001), tostring(5.50), tostring(1e300), tostring(-5)}`,
	`return 1697000000000001 .. ''`, `return 'a' .. 1 .. 'b' .. 2.5 .. 1e20`, `return #(1697000000 * 1000000 + 123456 .. '')`, `return (1 .. 2) + 1`,
	`local f = function() return 1e15, 2 end; return {f() .. '!', 'x' .. f()}`, `return {x = 1, ('a' .. 1e15)}`, `if 'a' .. 1e15 == 'a1e+15' then return 'so' end`,
	`for i = 1, #('x' .. 1e15) do if i == 6 then return i end end`, `local function f(...) return select('#', ...) .. (...) end return f(7, 8)`,
	`local t = {}; t['k' .. 1e15] = 5; return t['k1e+15']`, `while 'a' .. 1e15 ~= 'a1e+15' do return 'no' end return ('x' .. 1e15):upper()`,
	`return table.concat({1697000000000001, 2, 'x'}, ',')`, `return {table.concat({}), table.concat({1, 2, 3}, '-', 2), table.concat({1, 2, 3}, '-', 2, 2), table.concat({1, 2}, '-', 3), table.concat({'a', 'b'})}`,
	`return table.concat({1, {}, 2})`, `return table.concat({1, 2}, '-', 1, 3)`,
	`return {tonumber('010'), tonumber('0x10'), tonumber(' 5 '), tonumber('1e3'), tonumber('.5') * 2, tonumber('5.'), tonumber('-7'), tonumber('+7'), tonumber(7), tonumber('0X1p4')}`,
	`local n = 0; for _, s in ipairs({'', ' ', 'x', '1_0', '0b1', '0o7', '1 2', '5x', '--1', '1e', '0x', true, {}}) do if tonumber(s) == nil then n = n + 1 end end return n`,
	`return {tonumber(nil) == nil, tonumber('inf') == 1/0, tonumber('nan') ~= tonumber('nan'), tonumber('1697000000000001') == 1697000000000001}`,
	`return {string.format('%.0f', 1697000000000001), string.format('%d', 1697000000000001), string.format('%s', 1697000000000001), string.format('%s|%s', 'a', 5)}`,
	`return {string.format('%5.2f|%-5d|%05d|%+d|% d|%x|%X|%o|%i', 1.005, 3, 42, 1, 1, 255, 255, 8, 7), string.format('%d', 3.7), string.format('%d', -3.7), string.format('%d', '8')}`,
	`return {string.format('%g|%g|%g|%G|%e|%E', 1e20, 0.1, 1/3, 1e-10, 12345.678, 1), string.format('%.20g|%.14g|%.17g', 0.1, 1/3, 1/3), string.format('%c%c', 65, 200)}`,
	`return {string.format('%.3s|%5s|%-5s|', 'abcdef', 'xy', 'xy'), string.format('100%%'), string.format('x'), string.format('%s', 'x', 'y')}`,
	`return {string.match('a:0-17', '^(.+)%-%d+$'), string.match('a-b', '^(.+)%-%d+$') == nil, string.find('a.b', '.', 1, true), string.sub('hello', -3, -2), string.rep('ab', 3)}`,
	`local out = {}; for w in string.gmatch('one two  three', '%S+') do out[#out + 1] = w end return out`, `return {string.gsub('a-b-c', '-', '+')}`, `return {string.gsub('abc', '%w', '%0%0', 2)}`,
	`return {string.byte('A'), string.char(72, 105), string.len('x\0y'), string.lower('AbC'), ('x'):rep(2), #'x\0y', string.upper('é-x'), string.lower('É-X')}`, `return {string.reverse('\200\1z'), string.upper('\200a\255'), string.find('\200\201', '\201', 1, true), string.find('\200\201x', '%w'), string.byte('\200')}`,
	`local b = '\255\0\200'; redis.call('set', KEYS[1], b); return {redis.call('get', KEYS[1]), redis.call('get', KEYS[1]) == b, string.gsub(b, '%z', '0'), string.match(b, '^(.)'), string.rep(b, 2)}`, `return {string.find('key:LN:write', ':write$')}`,
	`local t = {3, 1, 2}; table.sort(t); table.insert(t, 9); table.insert(t, 1, 0); local last = table.remove(t); return {t[1], t[2], #t, last, table.remove(t, 1), unpack(t)}`,
	`local t = {3, 1, 2}; table.sort(t, function(a, b) return a > b end); return t`, `return {select(2, 'a', 'b', 'c')}`, `return {select('#'), select(-1, 1, 2)}`, `return {unpack({1, 2, 3}, 2)}`, `return {unpack({}, 1, 2), 5}`,
	`return {math.floor(-1.5), math.ceil(1.2), math.max(1, 3, 2), math.min(2, 1), math.abs(-4), math.huge == 1/0, math.fmod(7, 3), -7 % 3, 7 % -3, 2^10, 7 / 2}`,
	`local n = 0; for i = 10, 1, -3 do n = n + i end; repeat n = n - 1 until n < 5; while true do break end; return n`, `local a, b = next({x = 1}); return {a, b, next({}) == nil}`,
	`local n = 0; for k, v in pairs({1, 2, x = 3}) do n = n + v end return n`, `local t = {1, 2, nil, 4}; return #t`, `return {'a' < 'b', 'Z' < 'a', 1 < 2, 'a' == 'a', 1 == '1', not nil}`,
	`return {ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == nil, type(ARGV[2])}`, `local t = {}; for i = 1, 3000 do t[i] = i end; return redis.call('rpush', KEYS[1], unpack(t))`,
}

// worded are scripts whose error is the interpreter's own, with its own words for it.
var worded = []string{
	`return nil + 1`, `local x; return x.y`, `return 'a' .. nil`, "\nreturn 1 < 'x'", `return {} .. 'x'`, `return #5`, `local x; x()`, `return tostring()`, `return tonumber()`,
	`string.rep()`, `("x"):nosuch()`, `local t; t[1] = 2`, `return redis.nosuch('x')`, "local function f() return f() + 1 end\nreturn f()", `return - {}`, `return {} < {}`,
	`redis.call('set', KEYS[1], 'x') return tonumber(redis.call('get', KEYS[1])) + 1`, `return unpack()`, `ipairs()`, `table.concat(1)`,
	`return string.format('%d')`, `return string.format('%s')`, `return string.format('%d', 'x')`, `return string.format('%s', {})`, `return string.format('%y', 1)`, `return string.format('%')`,
}

func TestScriptsRunAsInRedis(t *testing.T) {
	t.Parallel()
	s := newSides(t)
	for _, source := range sources {
		s.fresh()
		s.both(source, source, []string{s.key("a"), s.key("b")}, exactly, "x", int64(42), 7, "")
	}
}

func TestMistakesOfScripts(t *testing.T) {
	t.Parallel()
	s := newSides(t)
	own := regexp.MustCompile(`^answer: ERR (user_script:\d+: )?.* (script: \w+, on @user_script:\d+\.)$`)
	for _, source := range worded {
		s.fresh()
		s.both(source, source, []string{s.key("a"), s.key("b")}, func(answer string) string {
			if parts := own.FindStringSubmatch(answer); parts != nil {
				return parts[1] + parts[2]
			}
			return answer
		})
	}
}
