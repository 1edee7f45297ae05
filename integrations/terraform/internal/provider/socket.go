package provider

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/setplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// socket is the resource sallyport_socket.
func socket() *rest.Kind {
	return &rest.Kind{
		Name:       "socket",
		Noun:       "socket",
		Collection: "/v1/sockets",
		HasETag:    true,
		Schema: schema.Schema{
			MarkdownDescription: "A socket: a public name for private services. Tunnels and direct origins carry its requests.",
			Attributes:          socketAttributes(),
		},
		Extend:   extendSocket,
		Begin:    letGo,
		Complete: attachPolicies,
		Fields: map[string]rest.Field{
			"name":                          {IsSame: sameTrimmed},
			"access.allow":                  {IsSame: samePlaces},
			"access.deny":                   {IsSame: samePlaces},
			"policies":                      {IsCreateOnly: true, IsShared: true},
			"label":                         {IsCreateOnly: true},
			"port":                          {IsCreateOnly: true},
			"force":                         {IsChangeOnly: true},
			"protected.password_wo":         {Name: "password"},
			"protected.password_wo_version": {Local: true, Initial: int64(1)},
			"regions.capacity.max_rps":      {Encode: encodeRPS, Decode: decodeRPS},
			"identity.email_addresses":      {IsSame: sameWords},
			"identity.email_domains":        {IsSame: sameWords},
			"domains":                       {IsSame: sameWords, IsShared: true},
		},
	}
}

func socketAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"id":         stable("The id of the socket."),
		"dns_name":   stable("The host name of the socket. No other organisation ever gets the name."),
		"created_at": stable("When the socket was made."),
		"url": schema.StringAttribute{
			Computed: true, MarkdownDescription: "The address for clients.",
			PlanModifiers: []planmodifier.String{unlessTypeChanges{}},
		},
		"name": required("The name of the socket, which no other socket of the organisation has: one line of 1 to 100 characters."),
		"type": withModifier(choice("The type. `http` and `https` name the protocol of origins; clients always get HTTPS. `tcp`, `tls` and `udp` sockets have a port of their own. A change between the two groups makes a new socket.",
			"http", "https", "tcp", "tls", "udp"), stringplanmodifier.RequiresReplaceIf(changesGroup, "", "A change between types with and without a port makes a new socket.")),
		"port": schema.Int64Attribute{
			Optional: true, Computed: true,
			MarkdownDescription: "The port of a `tcp`, `tls` or `udp` socket; a free one of the server's range when absent. Another port makes a new socket.",
			PlanModifiers:       []planmodifier.Int64{int64planmodifier.UseStateForUnknown(), int64planmodifier.RequiresReplaceIfConfigured()},
		},
		"label":  socketLabel(),
		"labels": labels(),
		"access": schema.SingleNestedAttribute{
			Optional: true, MarkdownDescription: "Networks, countries and autonomous systems of clients: `192.0.2.0/24`, `country:CH`, `asn:64500`.",
			Attributes: map[string]schema.Attribute{
				"allow": texts("The clients to admit; every client when absent."),
				"deny":  texts("The clients to deny, whatever `allow` has."),
			},
		},
		"affinity":            choice("Whether a client comes back to the same origin, and what identifies the client.", "none", "cookie", "address"),
		"origin_protocol":     choice("The HTTP version between edge and origin; `auto` is HTTP/2 for gRPC and HTTP/1.1 otherwise.", "auto", "http1", "http2"),
		"proxy_protocol":      choice("Whether the origin gets the client's address in a PROXY protocol header.", "off", "v1", "v2"),
		"tls_mode":            choice("Where the TLS of a `tls` socket ends: at the edge, or at the origin.", "terminate", "passthrough"),
		"amplification_guard": flagOr(true, "Whether the edge bounds replies to clients of a `udp` socket that have sent little, since their addresses may be forged."),
		"alpn": schema.ListAttribute{
			Optional: true, ElementType: types.StringType,
			MarkdownDescription: "The application protocols that the edge offers where the edge ends the TLS of a `tls` socket, best first.",
		},
		"domains":     texts("Verified domains of the organisation that lead to the socket (`http`, `https` and `tls` sockets); at most 32."),
		"host_header": optional("The host that origins see in requests instead of the public name: a host, with or without a port, or `origin` for the address of each origin."),
		"headers": schema.SingleNestedAttribute{
			Optional: true, MarkdownDescription: "Changes of header fields.",
			Attributes: map[string]schema.Attribute{
				"request":  headerRules("In requests, before an origin gets them."),
				"response": headerRules("In the responses of origins, before a client gets them."),
			},
		},
		"health_check": healthCheck(),
		"identity": schema.SingleNestedAttribute{
			Optional: true, MarkdownDescription: "Who may come in: only clients with an identity that the socket or one of its policies allows.",
			Attributes: map[string]schema.Attribute{
				"email_addresses":      texts("E-mail addresses to admit."),
				"email_domains":        texts("Domains of e-mail addresses to admit."),
				"providers":            texts("Accepted identity providers of the organisation; all when absent."),
				"session_minutes":      numberOr(720, "Minutes from a login until the provider is asked again."),
				"session_idle_minutes": numberOr(60, "Minutes for which a login may be unused."),
			},
		},
		"limits": schema.SingleNestedAttribute{
			Optional: true, MarkdownDescription: "Limits of the socket; an absent limit does not apply.",
			Attributes: map[string]schema.Attribute{
				"bytes_per_second":    number("Bytes in a second, both directions together."),
				"max_connections":     number("Connections, requests (HTTP) or flows (UDP) at a time."),
				"requests_per_second": number("New requests, connections or flows in a second."),
				"queue":               number("How many requests or flows beyond a limit wait instead of being refused."),
			},
		},
		"protected": protected(),
		"regions": schema.MapNestedAttribute{
			Optional: true, MarkdownDescription: "Settings of regions, by the region's name; at most 64.",
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"dial":     numberOr(100, "The share of the region's flows that the region keeps, in percent; the rest goes to the next nearest region."),
				"capacity": capacity("What the origins of the region can carry together."),
			}},
		},
		"policies": schema.SetAttribute{
			Optional: true, Computed: true, ElementType: types.StringType,
			MarkdownDescription: "The names of the policies that are attached to this socket, from its first moment on; at most 20. When absent, `sallyport_policy_attachment` or others attach them. Use one of the two for a socket.",
			PlanModifiers:       []planmodifier.Set{setplanmodifier.UseStateForUnknown()},
			Validators:          []validator.Set{setvalidator.ValueStringsAre(policyName)},
		},
		"force": schema.BoolAttribute{
			Optional: true, WriteOnly: true,
			MarkdownDescription: "Whether a change may open the socket to every client, or close it to every client, where `identity` or `policies` change and nothing else limits access. It is not kept in the state.",
		},
	}
}

func socketLabel() schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, Computed: true,
		MarkdownDescription: "The first label of the DNS name, where the server lets owners choose it; a generated one when absent. Another label makes a new socket.",
		PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
	}
}

func headerRules(description string) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true, MarkdownDescription: description,
		Attributes: map[string]schema.Attribute{
			"remove": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Names of fields to remove, before others are set.",
			},
			"set": schema.ListNestedAttribute{
				Optional: true, MarkdownDescription: "Fields to set, in the place of those of the same name; a Set-Cookie is added to the present ones.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"name":  required("The name of the field."),
					"value": required("Its value."),
				}},
			},
		},
	}
}

func healthCheck() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true, MarkdownDescription: "The health check of origins; when absent, only the results of flows count.",
		Attributes: map[string]schema.Attribute{
			"type":                required("The kind of the health check: `tcp` or `http`."),
			"path":                optional("The path of the requests of an `http` health check, beginning with a slash."),
			"status_from":         goodStatus(200, "The lowest status that is good (`http`)."),
			"status_to":           goodStatus(399, "The highest status that is good (`http`)."),
			"interval_seconds":    numberOr(5, "The time between two health checks, in seconds."),
			"timeout_seconds":     numberOr(2, "How long a response may take, in seconds; at most the interval."),
			"healthy_threshold":   numberOr(2, "How many passed health checks in a row bring an origin back."),
			"unhealthy_threshold": numberOr(3, "How many failed health checks in a row take an origin out."),
		},
	}
}

func protected() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true, MarkdownDescription: "A user name and password that every client must give (basic authentication at the edge).",
		Attributes: map[string]schema.Attribute{
			"username": required("The user name."),
			"password_wo": schema.StringAttribute{
				Required: true, WriteOnly: true, Sensitive: true,
				MarkdownDescription: "The password. It is neither in the plan nor in the state.",
			},
			"password_wo_version": numberOr(1, "A number that changes with the password: another version has the password sent again."),
		},
	}
}

// goodStatus returns a bound of good statuses, which only health checks over HTTP have.
func goodStatus(otherwise int64, description string) schema.Int64Attribute {
	return schema.Int64Attribute{
		Optional: true, Computed: true,
		MarkdownDescription: fmt.Sprintf("%s `%d` when absent.", description, otherwise),
		PlanModifiers:       []planmodifier.Int64{forHTTP(otherwise)},
	}
}

func withModifier(attribute schema.StringAttribute, modifier planmodifier.String) schema.StringAttribute {
	attribute.PlanModifiers = append(attribute.PlanModifiers, modifier)
	return attribute
}

func hasPort(kind string) bool { return kind == "tcp" || kind == "tls" || kind == "udp" }

// changesGroup has a new socket made where the type changes between those with a port and those without one.
func changesGroup(_ context.Context, request planmodifier.StringRequest, response *stringplanmodifier.RequiresReplaceIfFuncResponse) {
	response.RequiresReplace = hasPort(request.StateValue.ValueString()) != hasPort(request.PlanValue.ValueString())
}

// extendSocket adds what the API does not say by itself: the label, and which policies are attached to this socket
// alone.
func extendSocket(ctx context.Context, call *rest.Call, answer rest.Object) error {
	name, _ := answer["dns_name"].(string)
	answer["label"], _, _ = strings.Cut(name, ".")
	applying, _ := answer["policies"].([]any)
	attached := []any{}
	for _, policy := range applying {
		if slices.Contains(list(call.Values["policies"]), policy) {
			attached = append(attached, policy)
			continue
		}
		var found struct {
			Sockets []string `json:"sockets"`
		}
		_, err := call.Client.Get(ctx, "/v1/policies/"+url.PathEscape(fmt.Sprint(policy)), &found)
		if problem := client.AsProblem(err); problem != nil && (problem.Status == http.StatusNotFound || problem.Status == http.StatusForbidden) {
			continue // it went meanwhile, or the token may not see policies
		}
		if err != nil {
			return err
		}
		if slices.Contains(found.Sockets, fmt.Sprint(answer["id"])) {
			attached = append(attached, policy)
		}
	}
	answer["policies"] = attached
	return nil
}

// letGo detaches policies before the login of a socket goes, since policies about people need one.
func letGo(ctx context.Context, call *rest.Call) (bool, error) {
	if call.Config["policies"] == nil || call.Prior["identity"] == nil || call.Values["identity"] != nil {
		return false, nil
	}
	return movePolicies(ctx, call, call.Text("id"), "detach", missing(call.Prior, call.Values))
}

// attachPolicies attaches and detaches policies where a change says so. New ones come first, so that the socket is
// never without.
func attachPolicies(ctx context.Context, call *rest.Call, answer rest.Object) (rest.Object, error) {
	if call.Prior == nil || call.Config["policies"] == nil {
		return answer, nil
	}
	hasAttached, err := movePolicies(ctx, call, call.Text("id"), "attach", missing(call.Values, call.Prior))
	if err != nil {
		return answer, err
	}
	hasDetached, err := movePolicies(ctx, call, call.Text("id"), "detach", missing(call.Prior, call.Values))
	if err != nil || (!hasAttached && !hasDetached) {
		return answer, err
	}
	now := rest.Object{}
	_, err = call.Client.Get(ctx, call.Path(call.Kind.Item), &now)
	return now, err
}

// missing returns the policies of one that another has not.
func missing(of, from rest.Object) []any {
	others := list(from["policies"])
	return slices.DeleteFunc(slices.Clone(list(of["policies"])), func(policy any) bool { return slices.Contains(others, policy) })
}

// movePolicies attaches or detaches policies, and says whether there were any. The same again changes nothing.
func movePolicies(ctx context.Context, call *rest.Call, socket, verb string, policies []any) (bool, error) {
	for _, policy := range policies {
		place := rest.Object{"socket": socket, "force": call.Config["force"] == true}
		_, err := call.Client.Create(ctx, "/v1/policies/"+url.PathEscape(fmt.Sprint(policy))+"/"+verb, place, nil)
		if err != nil && (verb == "attach" || !client.IsGone(err)) {
			return true, fmt.Errorf("the policy %s: %w", policy, err)
		}
	}
	return len(policies) > 0, nil
}

func list(value any) []any {
	items, _ := value.([]any)
	return items
}
