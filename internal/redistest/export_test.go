package redistest

// Poll lets the external tests wait the way the package does.
var Poll = poll
