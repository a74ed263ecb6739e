package redistest

// Poll lets the external tests wait the way the package does.
var Poll = poll

// PID returns the process id. It changes with a [Server.Restart].
func (s *Server) PID() int { return s.proc.Load().PID() }
