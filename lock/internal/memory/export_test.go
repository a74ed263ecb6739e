package memory

import (
	"maps"
	"slices"
)

// LuaStack is how many values are on the interpreter's stack.
func (s *Server) LuaStack() int { return s.lua.state.GetTop() }

// CommandNames are the commands there are.
func CommandNames() []string { return slices.Sorted(maps.Keys(commands)) }
