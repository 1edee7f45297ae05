package client

import "sync"

// maxKept bounds how many secrets are kept.
const maxKept = 10_000

// memory has the secrets that control showed in this run, by the id of the object. It ends with the process.
type memory struct {
	lock    sync.Mutex
	secrets map[string]string
}

// Keep remembers a secret until the end of this process.
func (c *Client) Keep(id, secret string) {
	c.memory.lock.Lock()
	defer c.memory.lock.Unlock()
	if c.memory.secrets == nil {
		c.memory.secrets = map[string]string{}
	}
	if id != "" && secret != "" && len(c.memory.secrets) < maxKept {
		c.memory.secrets[id] = secret
	}
}

// Kept returns a secret that this process has been shown.
func (c *Client) Kept(id string) (secret string, ok bool) {
	c.memory.lock.Lock()
	defer c.memory.lock.Unlock()
	secret, ok = c.memory.secrets[id]
	return secret, ok
}
