// Package userdata has the user data of this folder, for programs that complete it.
package userdata

import _ "embed"

var (
	// Edge makes a fresh machine an edge.
	//go:embed edge.yaml
	Edge []byte
	// AnycastEdge makes a fresh machine an edge that announces prefixes.
	//go:embed anycast-edge.yaml
	AnycastEdge []byte
	// Origin makes a fresh machine an origin.
	//go:embed origin.yaml
	Origin []byte
)
