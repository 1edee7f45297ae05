// Package cloudinit completes the user data of integrations/cloud-init, which fresh machines get.
package cloudinit

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

const (
	header      = "#cloud-config\n"
	installed   = "/usr/local/bin/sallyport"
	rootOnly    = "0600"
	installFile = "/etc/sallyport/install.env"
	script      = "/usr/local/sbin/sallyport-install"
	// fetchFrom and fetchTo are the lines around the part of the script that fetches the program.
	fetchFrom, fetchTo = "set -eu\n", "fi\n"
)

// config is user data, as far as the files of integrations/cloud-init use it.
type config struct {
	PackageUpdate bool   `yaml:"package_update"`
	Apt           *apt   `yaml:"apt,omitempty"`
	Packages      []any  `yaml:"packages,omitempty"`
	WriteFiles    []file `yaml:"write_files"`
	Commands      []any  `yaml:"runcmd"`
	FinalMessage  string `yaml:"final_message"`
}

type apt struct {
	Sources map[string]aptSource `yaml:"sources"`
}

type aptSource struct {
	Source string `yaml:"source"`
	Key    string `yaml:"key"`
}

type file struct {
	Path        string `yaml:"path"`
	Permissions string `yaml:"permissions,omitempty"`
	Owner       string `yaml:"owner,omitempty"`
	Defer       bool   `yaml:"defer,omitempty"`
	Content     string `yaml:"content"`
}

// Program says where a machine has the program from: one of the three.
type Program struct {
	// Fetch is a file behind an address.
	Fetch *struct {
		URL    string `arg:"url"`
		SHA256 string `arg:"sha256"`
	} `arg:"program"`
	// Repository is an apt repository.
	Repository *struct {
		URL       string `arg:"url"`
		Key       string `arg:"key"`
		Suite     string `arg:"suite"`
		Component string `arg:"component"`
		Version   string `arg:"version"`
	} `arg:"apt"`
	// IsInstalled says whether the image of the machine has the program and its units.
	IsInstalled bool `arg:"installed"`
}

// More is what a machine gets for its owner's own ends.
type More struct {
	Packages    []string          `arg:"packages"`
	Files       []File            `arg:"files"`
	Commands    []any             `arg:"commands"`
	Environment map[string]string `arg:"environment"`
}

// File is a file of the machine's owner.
type File struct {
	Path        string `arg:"path"`
	Content     string `arg:"content"`
	Permissions string `arg:"permissions"`
	Owner       string `arg:"owner"`
}

func read(base []byte) (*config, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(base))
	decoder.KnownFields(true)
	var data config
	if err := decoder.Decode(&data); err != nil {
		return nil, fmt.Errorf("the user data of this provider cannot be read: %w", err)
	}
	return &data, nil
}

func (c *config) text() (string, error) {
	var text bytes.Buffer
	text.WriteString(header)
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(c); err != nil {
		return "", fmt.Errorf("the user data cannot be written: %w", err)
	}
	return text.String(), nil
}

// set gives a file other content.
func (c *config) set(path, content string) {
	for index := range c.WriteFiles {
		if c.WriteFiles[index].Path == path {
			c.WriteFiles[index].Content = content
			return
		}
	}
	c.WriteFiles = append(c.WriteFiles, file{Path: path, Permissions: rootOnly, Content: content})
}

// change replaces a part of a file. The part must be there: the files of integrations/cloud-init have it.
func (c *config) change(path, from, to string) error {
	for index := range c.WriteFiles {
		if content := c.WriteFiles[index].Content; c.WriteFiles[index].Path == path && strings.Contains(content, from) {
			c.WriteFiles[index].Content = strings.ReplaceAll(content, from, to)
			return nil
		}
	}
	return fmt.Errorf("the user data of this provider has no %q in %s", from, path)
}

func (c *config) remove(path string) {
	c.WriteFiles = slices.DeleteFunc(c.WriteFiles, func(f file) bool { return f.Path == path })
}

var sha256 = regexp.MustCompile(`^[0-9a-f]{64}$`)

// apply has the machine get the program. The unit that starts it is of the package, unless the machine has its own.
func (p Program) apply(data *config, unit string, isOwn bool) error {
	ways := 0
	for _, is := range []bool{p.Fetch != nil, p.Repository != nil, p.IsInstalled} {
		if is {
			ways++
		}
	}
	if ways != 1 {
		return fmt.Errorf("the machine must have the program from one place: set one of `program`, `apt` and `installed`")
	}
	if p.Fetch != nil {
		if err := isAddress("program.url", p.Fetch.URL); err != nil {
			return err
		}
		if !sha256.MatchString(p.Fetch.SHA256) {
			return fmt.Errorf("`program.sha256` is %q: write the 64 hexadecimal digits that sha256sum prints", p.Fetch.SHA256)
		}
		content, err := environment([]pair{{"SALLYPORT_URL", p.Fetch.URL}, {"SALLYPORT_SHA256", p.Fetch.SHA256}}, nil)
		data.set(installFile, content)
		return err
	}
	data.remove(installFile)
	if err := withoutFetch(data); err != nil {
		return err
	}
	data.Packages = slices.DeleteFunc(data.Packages, func(name any) bool { return name == "curl" })
	// A program of a package or of an image is where systemd looks for it.
	if err := data.change(unit, installed, "sallyport"); err != nil {
		return err
	}
	if p.Repository == nil {
		return nil
	}
	if !isOwn {
		data.remove(unit)
	}
	return p.repository(data)
}

// withoutFetch takes the part out of the script that fetches the program.
func withoutFetch(data *config) error {
	for index := range data.WriteFiles {
		if data.WriteFiles[index].Path != script {
			continue
		}
		before, rest, hasStart := strings.Cut(data.WriteFiles[index].Content, fetchFrom)
		fetched, after, hasEnd := strings.Cut(rest, "\n"+fetchTo)
		if hasStart && hasEnd && strings.Contains(fetched, "curl ") {
			before = strings.Replace(before, "Fetches the program, looks whether it is the one that is meant, and starts", "Starts", 1)
			data.WriteFiles[index].Content = before + fetchFrom + after
			return nil
		}
	}
	return fmt.Errorf("the user data of this provider has no script that fetches the program")
}

var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+:~/_-]*$`)

func (p Program) repository(data *config) error {
	from := *p.Repository
	from.Suite, from.Component = orElse(from.Suite, "stable"), orElse(from.Component, "main")
	if err := isPublicAddress("apt.url", from.URL); err != nil {
		return err
	}
	if !strings.Contains(from.Key, "-----BEGIN PGP PUBLIC KEY BLOCK-----") {
		return fmt.Errorf("`apt.key` is no key: write the armored OpenPGP key that signs the repository")
	}
	for name, value := range map[string]string{"suite": from.Suite, "component": from.Component, "version": orElse(from.Version, "0")} {
		if !word.MatchString(value) {
			return fmt.Errorf("`apt.%s` is %q: write one word", name, value)
		}
	}
	line := fmt.Sprintf("deb [signed-by=$KEY_FILE] %s %s %s", from.URL, from.Suite, from.Component)
	data.Apt = &apt{map[string]aptSource{"sallyport.list": {line, from.Key}}}
	if from.Version == "" {
		data.Packages = append(data.Packages, "sallyport")
	} else {
		data.Packages = append(data.Packages, []string{"sallyport", from.Version})
	}
	return nil
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// isAddress checks an address that a machine fetches from.
func isAddress(name, text string) error {
	found, err := url.Parse(text)
	if err != nil || found.Host == "" || (found.Scheme != "https" && found.Scheme != "http") || strings.ContainsAny(text, " \t\r\n") {
		return fmt.Errorf("`%s` is %q: write an address that begins with https://", name, text)
	}
	return nil
}

// isPublicAddress checks an address that every user of the machine may read.
func isPublicAddress(name, text string) error {
	if found, err := url.Parse(text); err == nil && found.User != nil {
		return fmt.Errorf("`%s` has a user or a password, and every user of the machine can read it: leave that out", name)
	}
	return isAddress(name, text)
}

var (
	permissions = regexp.MustCompile(`^0?[0-7]{3,4}$`)
	owner       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*\$?(:[A-Za-z0-9_][A-Za-z0-9_.-]*\$?)?$`)
)

// apply adds what the machine's owner wants. The commands run before the program starts.
func (m More) apply(data *config) error {
	for _, name := range m.Packages {
		if !word.MatchString(name) {
			return fmt.Errorf("`packages` has %q, which is no name of a package", name)
		}
		data.Packages = append(data.Packages, name)
	}
	for index, from := range m.Files {
		switch {
		case !strings.HasPrefix(from.Path, "/"):
			return fmt.Errorf("`files[%d].path` is %q: write a whole path, beginning with a slash", index, from.Path)
		case path.Clean(from.Path) != from.Path || strings.ContainsFunc(from.Path, unicode.IsControl):
			// Another spelling of a path could replace a file of this provider.
			return fmt.Errorf("`files[%d].path` is %q: write it without dots, double slashes and control characters", index, from.Path)
		case from.Permissions != "" && !permissions.MatchString(from.Permissions):
			return fmt.Errorf("`files[%d].permissions` is %q: write octal digits such as \"0644\"", index, from.Permissions)
		case from.Owner != "" && !owner.MatchString(from.Owner):
			return fmt.Errorf("`files[%d].owner` is %q: write USER or USER:GROUP", index, from.Owner)
		case slices.ContainsFunc(data.WriteFiles, func(f file) bool { return f.Path == from.Path }):
			return fmt.Errorf("`files[%d].path` is %q, which the machine has already from here", index, from.Path)
		}
		// Owners of packages are there once packages are.
		data.WriteFiles = append(data.WriteFiles, file{from.Path, orElse(from.Permissions, rootOnly), from.Owner, from.Owner != "", from.Content})
	}
	for index, command := range m.Commands {
		if err := isCommand(command); err != nil {
			return fmt.Errorf("`commands[%d]` %w", index, err)
		}
	}
	data.Commands = append(slices.Clone(m.Commands), data.Commands...)
	return nil
}

func isCommand(command any) error {
	if text, ok := command.(string); ok && text != "" {
		return nil
	}
	words, _ := command.([]any)
	for _, word := range words {
		if _, ok := word.(string); !ok {
			return fmt.Errorf("has %v among its words: write texts", word)
		}
	}
	if len(words) == 0 {
		return fmt.Errorf("is no command: write a line for the shell, or a list of words")
	}
	return nil
}

type pair struct{ name, value string }

var (
	variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	bare     = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)
	escape   = strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`, "`", "\\`")
)

// environment writes a file that systemd and the shell read alike: pairs with a value, then more in order.
func environment(pairs []pair, more map[string]string) (string, error) {
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if !variable.MatchString(name) {
			return "", fmt.Errorf("`environment` has %q, which is no name of a variable", name)
		}
		if slices.ContainsFunc(pairs, func(p pair) bool { return p.name == name && p.value != "" }) {
			return "", fmt.Errorf("`environment` has %s, which another field sets", name)
		}
		pairs = append(pairs, pair{name, more[name]})
	}
	var text strings.Builder
	for _, p := range pairs {
		value := p.value
		switch {
		case value == "":
			continue
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return "", fmt.Errorf("the value of %s has a line end or another control character, which no environment file can have", p.name)
		case !bare.MatchString(value):
			value = `"` + escape.Replace(value) + `"`
		}
		fmt.Fprintf(&text, "%s=%s\n", p.name, value)
	}
	return text.String(), nil
}
