package cloudinit

import (
	"fmt"
	"strings"

	userdata "github.com/sallyport/sallyport/integrations/cloud-init"
	"github.com/sallyport/sallyport/integrations/terraform/internal/services"
)

const (
	runUnit        = "/etc/systemd/system/sallyport-run.service"
	runEnvironment = "/etc/sallyport/run.env"
	servicesFile   = "/etc/sallyport/services.toml"
	caFile         = "/etc/sallyport/ca.pem"
)

// Origin is a machine that serves sockets.
type Origin struct {
	API           string `arg:"api"`
	CA            string `arg:"ca"`
	Token         string `arg:"token"`
	services.File `arg:",squash"`
	Program       `arg:",squash"`
	More          `arg:",squash"`
}

// UserData returns the user data of the machine, or an error in one sentence.
func (o Origin) UserData() (string, error) {
	if err := isPublicAddress("api", o.API); err != nil {
		return "", err
	}
	// The machine sends its token or credential there.
	if !strings.HasPrefix(o.API, "https://") {
		return "", fmt.Errorf("`api` is %q: write an address that begins with https://, since a secret goes there", o.API)
	}
	text, err := o.TOML()
	if err != nil {
		return "", err
	}
	if strings.ContainsAny(o.Token, " \t\r\n") {
		return "", fmt.Errorf("`token` has white space in it: copy it again, without quotes and line ends")
	}
	for index, service := range o.Services {
		if o.Token == "" && service["tunnel_credential"] == nil && service["tunnel-credential"] == nil {
			return "", fmt.Errorf("services[%d] has no `tunnel_credential`, and the machine has no `token`: one of them lets it serve", index)
		}
	}
	data, err := read(userdata.Origin)
	if err != nil {
		return "", err
	}
	pairs := []pair{{"SALLYPORT_API", o.API}, {"SALLYPORT_TOKEN", o.Token}}
	if o.CA != "" {
		if !strings.Contains(o.CA, "-----BEGIN CERTIFICATE-----") {
			return "", fmt.Errorf("`ca` is no certificate: write the root certificate in PEM, not the name of its file")
		}
		// Every user of the machine can read the file.
		if strings.Contains(o.CA, "PRIVATE KEY-----") {
			return "", fmt.Errorf("`ca` has a private key, which no machine needs: write the root certificate alone")
		}
		pairs = append(pairs, pair{"SALLYPORT_CA", caFile})
		data.WriteFiles = append(data.WriteFiles, file{Path: caFile, Permissions: "0644", Content: o.CA})
	}
	content, err := environment(pairs, o.Environment)
	if err != nil {
		return "", err
	}
	data.set(runEnvironment, content)
	data.set(servicesFile, text)
	if err := o.Program.apply(data, runUnit, false); err != nil {
		return "", err
	}
	if err := o.More.apply(data); err != nil {
		return "", err
	}
	return data.text()
}
