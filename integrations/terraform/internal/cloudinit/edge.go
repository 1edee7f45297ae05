package cloudinit

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	userdata "github.com/sallyport/sallyport/integrations/cloud-init"
)

const (
	edgeUnit        = "/etc/systemd/system/sallyport-edge.service"
	edgeEnvironment = "/etc/sallyport/edge.env"
	listenWords     = "--listen :443 --listen-http :80"
)

// Edge is a machine that becomes an edge.
type Edge struct {
	Token      string `arg:"token"`
	Name       string `arg:"name"`
	Region     string `arg:"region"`
	Advertise  string `arg:"advertise"`
	Listen     string `arg:"listen"`
	ListenHTTP string `arg:"listen_http"`
	Anycast    *struct {
		Allow []string `arg:"allow"`
	} `arg:"anycast"`
	Program `arg:",squash"`
	More    `arg:",squash"`
}

var (
	joinToken = regexp.MustCompile(`^spe_[^\s\p{Cc}]+$`)
	listen    = regexp.MustCompile(`^([A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$`)
)

// UserData returns the user data of the machine, or an error in one sentence.
func (e Edge) UserData() (string, error) {
	base := userdata.Edge
	pairs := []pair{{"SALLYPORT_JOIN", e.Token}, {"SALLYPORT_NAME", e.Name}, {"SALLYPORT_REGION", e.Region}, {"SALLYPORT_ADVERTISE", e.Advertise}}
	if !joinToken.MatchString(e.Token) {
		return "", fmt.Errorf("`token` is no token with which an edge joins: `sallyport edge token create` prints one, which begins with spe_")
	}
	if e.Anycast != nil {
		base = userdata.AnycastEdge
		for _, prefix := range e.Anycast.Allow {
			if found, err := netip.ParsePrefix(prefix); err != nil || found != found.Masked() {
				return "", fmt.Errorf("`anycast.allow` has %q, which is no prefix such as 198.51.100.0/24", prefix)
			}
		}
		if len(e.Anycast.Allow) == 0 {
			return "", fmt.Errorf("`anycast.allow` is missing: write the prefixes that the machine may announce")
		}
		pairs = append(pairs, pair{"SALLYPORT_ANYCAST_ALLOW", strings.Join(e.Anycast.Allow, ",")},
			pair{"SALLYPORT_BIRD", "/run/bird/bird.ctl"}, pair{"SALLYPORT_BIRD_CONFIG", "/etc/bird/sallyport/sallyport.conf"})
	}
	data, err := read(base)
	if err != nil {
		return "", err
	}
	content, err := environment(pairs, e.Environment)
	if err != nil {
		return "", err
	}
	data.set(edgeEnvironment, content)
	if err := e.listen(data); err != nil {
		return "", err
	}
	if err := e.Program.apply(data, edgeUnit, e.Listen+e.ListenHTTP != ""); err != nil {
		return "", err
	}
	if err := e.More.apply(data); err != nil {
		return "", err
	}
	return data.text()
}

func (e Edge) listen(data *config) error {
	for name, value := range map[string]string{"listen": e.Listen, "listen_http": e.ListenHTTP, "advertise": e.Advertise} {
		if value != "" && !isListen(value) && !(name == "listen_http" && value == "none") {
			return fmt.Errorf("`%s` is %q: write ADDRESS:PORT, such as 192.0.2.10:443", name, value)
		}
	}
	if e.Listen == "" && e.ListenHTTP == "" {
		return nil
	}
	words := fmt.Sprintf("--listen %s --listen-http %s", orElse(e.Listen, ":443"), orElse(e.ListenHTTP, ":80"))
	return data.change(edgeUnit, listenWords, words)
}

func isListen(text string) bool {
	port, err := strconv.ParseUint(text[strings.LastIndex(text, ":")+1:], 10, 16)
	return listen.MatchString(text) && err == nil && port > 0
}
