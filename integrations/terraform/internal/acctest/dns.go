package acctest

import (
	"net"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// maxMessageBytes bounds what is read of a question.
const maxMessageBytes = 1232

// Names is a name server with the TXT records that tests give it. It knows no other name.
type Names struct {
	Address string
	mutex   sync.Mutex
	texts   map[string]string
	socket  net.PacketConn
}

// StartNames starts a name server on a free port.
func StartNames() (*Names, error) {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	names := &Names{Address: socket.LocalAddr().String(), texts: map[string]string{}, socket: socket}
	go names.serve()
	return names, nil
}

// SetText adds a TXT record.
func (n *Names) SetText(name, value string) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.texts[strings.ToLower(strings.TrimSuffix(name, "."))+"."] = value
}

// Stop ends the name server.
func (n *Names) Stop() { _ = n.socket.Close() }

func (n *Names) serve() {
	question := make([]byte, maxMessageBytes)
	for {
		length, from, err := n.socket.ReadFrom(question)
		if err != nil {
			return
		}
		var message dnsmessage.Message
		if message.Unpack(question[:length]) != nil || len(message.Questions) != 1 {
			continue
		}
		if answer, err := n.answer(message); err == nil {
			_, _ = n.socket.WriteTo(answer, from)
		}
	}
}

func (n *Names) answer(message dnsmessage.Message) ([]byte, error) {
	asked := message.Questions[0]
	answer := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: message.ID, Response: true, RecursionDesired: message.RecursionDesired, RecursionAvailable: true},
		Questions: message.Questions,
	}
	n.mutex.Lock()
	text, isKnown := n.texts[strings.ToLower(asked.Name.String())]
	n.mutex.Unlock()
	switch {
	case !isKnown:
		answer.RCode = dnsmessage.RCodeNameError
	case asked.Type == dnsmessage.TypeTXT:
		header := dnsmessage.ResourceHeader{Name: asked.Name, Type: asked.Type, Class: asked.Class, TTL: 1}
		answer.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.TXTResource{TXT: []string{text}}}}
	}
	return answer.Pack()
}
