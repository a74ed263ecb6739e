package lock

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// maxNameBytes bounds a lock's name, prefix included, because commands, log lines and spans contain it.
const maxNameBytes = 1024

// checkName returns an error if the name of a lock, prefix included, isn't allowed.
func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the lock's name is empty", ErrInvalid)
	case len(name) > maxNameBytes:
		return fmt.Errorf("%w: the lock's name %.32q… has %d bytes, at most %d are allowed",
			ErrInvalid, name, len(name), maxNameBytes)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the lock's name %q is not valid UTF-8", ErrInvalid, name)
	}
	if err := checkReserved("the lock's name", name); err != nil {
		return err
	}
	if err := checkBraces("the lock's name", name); err != nil {
		return err
	}
	if tag, _ := hashslot.Tagged(name); tag != "" && name == "{"+tag+"}" {
		return fmt.Errorf("%w: the lock's name %q is a hash tag as a whole, and what belongs to it would have the same keys as that of %q; use %q, or add to it, as in %q",
			ErrInvalid, name, tag, tag, name+":lock")
	}
	return nil
}

// checkReserved rejects text that contains a reserved part.
func checkReserved(what, s string) error {
	if !strings.Contains(s, "lock") { // the reserved parts all contain it, and few names do
		return nil
	}
	for _, part := range script.Reserved {
		if strings.Contains(s, part) {
			return fmt.Errorf("%w: %s %q contains %q, which is reserved for keys that lockdog or Redisson keep beside locks; choose another name",
				ErrInvalid, what, s, part)
		}
	}
	return nil
}

// checkBraces rejects text with braces but no hash tag. In a cluster, such a lock and its channel would be in different
// slots: a name with a '{' gets no braces in its channel, and after a lone '}' the rest of the name isn't part of the
// channel's tag. Braces after the tag change nothing.
func checkBraces(what, s string) error {
	if !strings.ContainsAny(s, "{}") {
		return nil
	}
	if _, ok := hashslot.Tagged(s); !ok {
		return fmt.Errorf("%w: %s %q has braces that are no hash tag; use none, or first a non-empty {tag}",
			ErrInvalid, what, s)
	}
	return nil
}
