package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/setplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// anycastPrefix is the resource sallyport_anycast_prefix.
func anycastPrefix() *rest.Kind {
	return &rest.Kind{
		Name:       "anycast_prefix",
		Noun:       "anycast prefix",
		Collection: "/v1/anycast/prefixes",
		Schema: schema.Schema{
			MarkdownDescription: "A prefix that edges announce by BGP. The token is one of the account that owns the installation. Every change makes a new one.",
			Attributes: map[string]schema.Attribute{
				"id":         stable("The id of the prefix."),
				"created_at": stable("When the prefix was made."),
				"prefix":     parent("The prefix: within one that the operator allows (`--anycast-allow`), without bits after its length."),
				"addresses": schema.SetAttribute{
					Optional: true, Computed: true, ElementType: types.StringType,
					MarkdownDescription: "The addresses in it at which edges serve; the first host of the prefix when absent.",
					PlanModifiers:       []planmodifier.Set{setplanmodifier.UseStateForUnknown(), setplanmodifier.RequiresReplaceIfConfigured()},
				},
				"regions":     replacedTexts("The regions that announce it; all when absent."),
				"communities": replacedTexts("Communities of each announcement, such as `64500:1` or `64500:1:2`."),
				"min_sites":   replacedNumber(1, "How many regions announce it at least."),
			},
		},
		Read: fromList("/v1/anycast/prefixes", "prefix"),
	}
}

// anycastPeer is the resource sallyport_anycast_peer.
func anycastPeer() *rest.Kind {
	return &rest.Kind{
		Name:       "anycast_peer",
		Noun:       "router",
		Collection: "/v1/anycast/peers",
		Schema: schema.Schema{
			MarkdownDescription: "A router with which edges speak BGP. The token is one of the account that owns the installation. Every change makes a new one.",
			Attributes:          anycastPeerAttributes(),
		},
		Read: fromList("/v1/anycast/peers", "router"),
		Extend: func(_ context.Context, _ *rest.Call, answer rest.Object) error {
			if answer["role"] == nil {
				answer["role"] = "none"
			}
			return nil
		},
		Fields: map[string]rest.Field{
			"password_wo":         {Name: "password"},
			"password_wo_version": {Local: true, Initial: int64(1)},
		},
	}
}

func anycastPeerAttributes() map[string]schema.Attribute {
	role := choice("What the router is to you (RFC 9234).", "provider", "peer", "route-server", "customer", "none")
	role.PlanModifiers = []planmodifier.String{stringplanmodifier.RequiresReplace()}
	return map[string]schema.Attribute{
		"id":                stable("The id of the router."),
		"created_at":        stable("When the router was made."),
		"name":              parent("The name of the router: a small letter, then small letters, digits and `-`; at most 32."),
		"address":           parent("The address of the router."),
		"remote_as":         replacedSystem("The autonomous system of the router."),
		"local_as":          replacedSystem("The autonomous system of the edges."),
		"place":             replacedTextOr("everywhere", "Which edges speak with the router: `everywhere`, `region:NAME` or `edge:NAME`."),
		"role":              role,
		"hops":              replacedNumber(1, "How many hops away the router is."),
		"max_prefixes":      replacedNumber(1000, "The most routes that the router may send before its session ends."),
		"prepend":           replacedNumber(0, "How often the own number is prepended."),
		"communities":       replacedTexts("Communities of announcements to the router."),
		"drain_communities": replacedTexts("Communities of deprioritised announcements to the router, beside GRACEFUL_SHUTDOWN."),
		"no_export":         replacedFlag("Whether the router sends the routes to no other network."),
		"bfd": schema.SingleNestedAttribute{
			Optional: true, MarkdownDescription: "How BFD watches the router; it does not when absent.",
			PlanModifiers: []planmodifier.Object{objectplanmodifier.RequiresReplace()},
			Attributes: map[string]schema.Attribute{
				"interval_ms": numberOr(100, "How often packets are sent and expected, in milliseconds."),
				"multiplier":  numberOr(3, "After how many missing packets the router is down."),
			},
		},
		"password_wo": schema.StringAttribute{
			Optional: true, Sensitive: true, WriteOnly: true,
			MarkdownDescription: "The password of the session (TCP MD5). It is not kept in the state.",
		},
		"password_wo_version": passwordVersion(),
	}
}

// passwordVersion returns the number of a password; another number makes a new object. A state without it is of an
// earlier provider, and says nothing.
func passwordVersion() schema.Int64Attribute {
	const why = "Another number makes a new object."
	replaced := func(_ context.Context, request planmodifier.Int64Request, response *int64planmodifier.RequiresReplaceIfFuncResponse) {
		response.RequiresReplace = !request.StateValue.IsNull()
	}
	attribute := numberOr(1, "A number that changes with the password: another version makes the router anew with the present password, also where it had none.")
	attribute.PlanModifiers = []planmodifier.Int64{int64planmodifier.RequiresReplaceIf(replaced, why, why)}
	return attribute
}

// fromList reads an object that the API has only in a list.
func fromList(path, noun string) func(context.Context, *rest.Call) (rest.Object, error) {
	return func(ctx context.Context, call *rest.Call) (rest.Object, error) {
		items, err := call.Client.List(ctx, path, nil)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			found := rest.Object{}
			if err := json.Unmarshal(item, &found); err != nil {
				return nil, err
			}
			if found["id"] != call.Text("id") {
				continue
			}
			if call.Kind.Extend != nil {
				err = call.Kind.Extend(ctx, call, found)
			}
			return found, err
		}
		return nil, &client.Problem{Status: http.StatusNotFound, Code: "not-found", Detail: fmt.Sprintf("there is no %s with this id", noun)}
	}
}

// replacedTexts returns a set of texts; other ones make a new object.
func replacedTexts(description string) schema.SetAttribute {
	attribute := texts(description)
	attribute.PlanModifiers = []planmodifier.Set{setplanmodifier.RequiresReplace()}
	return attribute
}

// replacedNumber returns a number with a default; another one makes a new object.
func replacedNumber(value int64, description string) schema.Int64Attribute {
	attribute := numberOr(value, description)
	attribute.PlanModifiers = []planmodifier.Int64{int64planmodifier.RequiresReplace()}
	return attribute
}

// replacedSystem returns the number of an autonomous system; another one makes a new object.
func replacedSystem(description string) schema.Int64Attribute {
	return schema.Int64Attribute{
		Required: true, MarkdownDescription: description,
		PlanModifiers: []planmodifier.Int64{int64planmodifier.RequiresReplace()},
	}
}

// replacedTextOr returns a text with a default; another one makes a new object.
func replacedTextOr(value, description string) schema.StringAttribute {
	attribute := choice(description, value)
	attribute.Validators = nil
	attribute.MarkdownDescription = fmt.Sprintf("%s `%s` when absent.", description, value)
	attribute.PlanModifiers = []planmodifier.String{stringplanmodifier.RequiresReplace()}
	return attribute
}

// replacedFlag returns a truth that is false when absent; the other one makes a new object.
func replacedFlag(description string) schema.BoolAttribute {
	attribute := flagOr(false, description)
	attribute.PlanModifiers = []planmodifier.Bool{boolplanmodifier.RequiresReplace()}
	return attribute
}
