// Package userdata renders what makes a fresh machine an edge or an origin: user data for cloud-init, and services files.
package userdata

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
)

// Object is an object of Terraform, as JSON would have it.
type Object = map[string]any

// base has the user data for people who edit it by hand (integrations/cloud-init), copied here by `generate`.
//
//go:embed base
var base embed.FS

// Files that the functions fill in.
const (
	edgeFile     = "/etc/sallyport/edge.env"
	runFile      = "/etc/sallyport/run.env"
	installFile  = "/etc/sallyport/install.env"
	servicesFile = "/etc/sallyport/services.toml"
	caFile       = "/etc/sallyport/ca.pem"
)

// maxServices bounds a services file, as `sallyport run` does.
const maxServices = 1024

// Edge renders the user data of an edge.
func Edge(of Object) (string, error) {
	fields := reader{of: of, what: "cloud_init_edge"}
	fields.allow("token", "name", "region", "advertise", "program", "anycast_allow", "environment", "more")
	env := Object{"SALLYPORT_JOIN": fields.required("token")}
	for field, variable := range map[string]string{"name": "SALLYPORT_NAME", "region": "SALLYPORT_REGION", "advertise": "SALLYPORT_ADVERTISE"} {
		if value := fields.text(field); value != "" {
			env[variable] = value
		}
	}
	name := "edge.yaml"
	if prefixes := fields.texts("anycast_allow"); len(prefixes) > 0 {
		name = "anycast-edge.yaml"
		env["SALLYPORT_ANYCAST_ALLOW"] = strings.Join(prefixes, ",")
		env["SALLYPORT_BIRD"] = "/run/bird/bird.ctl"
		env["SALLYPORT_BIRD_CONFIG"] = "/etc/bird/sallyport/sallyport.conf"
	}
	maps.Copy(env, fields.object("environment"))
	contents := map[string]string{edgeFile: fields.environment(env), installFile: fields.program()}
	return fields.render(name, contents, nil)
}

// Origin renders the user data of an origin.
func Origin(of Object) (string, error) {
	fields := reader{of: of, what: "cloud_init_origin"}
	fields.allow("api", "ca", "token", "program", "services", "environment", "more")
	env := Object{"SALLYPORT_API": fields.required("api")}
	var more []any
	if ca := fields.text("ca"); ca != "" {
		env["SALLYPORT_CA"] = caFile
		more = append(more, Object{"path": caFile, "permissions": "0644", "content": ca})
	}
	if token := fields.text("token"); token != "" {
		env["SALLYPORT_TOKEN"] = token
	}
	maps.Copy(env, fields.object("environment"))
	services, err := Services(Object{"service": fields.of["services"]})
	if err != nil {
		fields.problems = append(fields.problems, err)
	}
	contents := map[string]string{runFile: fields.environment(env), installFile: fields.program(), servicesFile: services}
	return fields.render("origin.yaml", contents, more)
}

// Services renders a services file of `sallyport run`: settings above, and a list of services.
func Services(of Object) (string, error) {
	services, ok := of["service"].([]any)
	if !ok || len(services) == 0 {
		return "", errors.New("services: write a list of one service at least, such as [{ port = 8000 }]")
	}
	if len(services) > maxServices {
		return "", fmt.Errorf("services: there are %d services, and a file has at most %d", len(services), maxServices)
	}
	for index, service := range services {
		if _, ok := service.(Object); !ok {
			return "", fmt.Errorf("services: number %d is no object such as { port = 8000 }", index+1)
		}
	}
	text, err := toml.Marshal(withHyphens(of))
	return string(text), err
}

// withHyphens gives keys the names of options: socket_id is socket-id. What is null is left out.
func withHyphens(value any) any {
	switch value := value.(type) {
	case Object:
		fields := Object{}
		for name, field := range value {
			if field != nil {
				fields[strings.ReplaceAll(name, "_", "-")] = withHyphens(field)
			}
		}
		return fields
	case []any:
		items := make([]any, 0, len(value))
		for _, item := range value {
			items = append(items, withHyphens(item))
		}
		return items
	}
	return value
}

// reader takes the fields of an argument, and collects what is wrong with them.
type reader struct {
	of       Object
	what     string
	problems []error
}

func (r *reader) fail(format string, values ...any) {
	r.problems = append(r.problems, fmt.Errorf(format, values...))
}

// allow refuses fields of other names.
func (r *reader) allow(names ...string) {
	for _, name := range slices.Sorted(maps.Keys(r.of)) {
		if !slices.Contains(names, name) {
			r.fail("%s has no field %q; there are %s", r.what, name, strings.Join(names, ", "))
		}
	}
}

func (r *reader) text(name string) string {
	switch value := r.of[name].(type) {
	case nil:
		return ""
	case string:
		return value
	default:
		r.fail("%s: a text is expected, not %v", name, value)
		return ""
	}
}

func (r *reader) required(name string) string {
	value := r.text(name)
	if value == "" {
		r.fail("%s is missing", name)
	}
	return value
}

func (r *reader) texts(name string) []string {
	items, ok := r.of[name].([]any)
	if !ok && r.of[name] != nil {
		r.fail("%s: a list of texts is expected", name)
	}
	found := make([]string, 0, len(items))
	for _, item := range items {
		text, ok := item.(string)
		if !ok {
			r.fail("%s: a list of texts is expected", name)
		}
		found = append(found, text)
	}
	return found
}

func (r *reader) object(name string) Object {
	value, ok := r.of[name].(Object)
	if !ok && r.of[name] != nil {
		r.fail("%s: an object is expected", name)
	}
	return value
}

var (
	variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	digest   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// environment renders a file of variables, as systemd reads it.
func (r *reader) environment(values Object) string {
	lines := make([]string, 0, len(values)+1)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text := fmt.Sprint(values[name])
		switch {
		case !variable.MatchString(name):
			r.fail("environment: %q is no name of a variable", name)
		case strings.ContainsAny(text, "\r\n\x00"):
			r.fail("environment: the value of %s has a line end", name)
		}
		lines = append(lines, name+"="+quoted(text))
	}
	return strings.Join(append(lines, ""), "\n")
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_.,:/@%+=\[\]-]*$`)

// quoted writes a value so that systemd and a shell read the same.
func quoted(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(text) + `"`
}

// program renders where the machine fetches the program.
func (r *reader) program() string {
	program := reader{of: r.object("program"), what: "program"}
	program.allow("url", "sha256")
	url, sum := program.required("url"), program.required("sha256")
	if url != "" && !strings.HasPrefix(url, "https://") && !strings.HasPrefix(url, "http://") {
		program.fail("url is no address such as https://downloads.example.com/sallyport")
	}
	if sum != "" && !digest.MatchString(sum) {
		program.fail("sha256 is no SHA-256: 64 digits of `sha256sum sallyport` are expected")
	}
	for _, problem := range program.problems {
		r.fail("program: %w", problem)
	}
	return r.environment(Object{"SALLYPORT_URL": url, "SALLYPORT_SHA256": sum})
}

// render fills the files of a base, and adds further files and parts.
func (r *reader) render(name string, contents map[string]string, files []any) (string, error) {
	parts := r.texts("more")
	if len(r.problems) > 0 {
		return "", errors.Join(r.problems...)
	}
	text, err := base.ReadFile("base/" + name)
	if err != nil {
		return "", err
	}
	document := Object{}
	if err := yaml.Unmarshal(text, &document); err != nil {
		return "", err
	}
	listed, _ := document["write_files"].([]any)
	for _, entry := range listed {
		file, _ := entry.(Object)
		path, _ := file["path"].(string)
		if content, isFilled := contents[path]; isFilled {
			file["content"] = content
		}
	}
	document["write_files"] = append(listed, files...)
	rendered, err := yaml.Marshal(document)
	if err != nil {
		return "", err
	}
	return archive(append(parts, "#cloud-config\n"+string(rendered)))
}

// archive makes one text of several parts; lists such as write_files and runcmd of all parts are kept.
func archive(parts []string) (string, error) {
	if len(parts) == 1 {
		return parts[0], nil
	}
	list := make([]any, 0, len(parts))
	for _, part := range parts {
		switch {
		case strings.HasPrefix(part, "#cloud-config"):
			merged := "merge_how: list(append)+dict(no_replace,recurse_list)+str()\n"
			list = append(list, Object{"type": "text/cloud-config", "content": strings.TrimRight(part, "\n") + "\n" + merged})
		case strings.HasPrefix(part, "#!"):
			list = append(list, Object{"type": "text/x-shellscript", "content": part})
		default:
			return "", errors.New("more: a part begins with #cloud-config or #!")
		}
	}
	text, err := yaml.Marshal(list)
	return "#cloud-config-archive\n" + string(text), err
}
