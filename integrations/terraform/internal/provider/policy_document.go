package provider

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

func ruleText(description string) schema.StringAttribute {
	return schema.StringAttribute{Optional: true, MarkdownDescription: description}
}

func ruleTexts(description string) schema.ListAttribute {
	return schema.ListAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: description}
}

// rules returns the rules of a policy.
func rules(description string) schema.ListNestedAttribute {
	weekly := schema.ListNestedAttribute{
		Optional: true, MarkdownDescription: "Windows of the week.",
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"days": ruleTexts("The days on which the window begins: `mon` to `sun`; every day when absent."),
			"from": ruleText("The beginning of the window, such as `08:00`."),
			"to":   ruleText("The end of the window; at or before `from`: on the next day."),
		}},
	}
	return schema.ListNestedAttribute{
		Optional: true, MarkdownDescription: description,
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"name": ruleText("The name of the rule in the explanation of a decision."),
			"who": schema.SingleNestedAttribute{
				Optional: true, MarkdownDescription: "The identity of the client.",
				Attributes: map[string]schema.Attribute{
					"anyone":         schema.BoolAttribute{Optional: true, MarkdownDescription: "Every client, without other conditions."},
					"emails":         ruleTexts("People by their e-mail addresses."),
					"email_domains":  ruleTexts("People by the exact domains of their e-mail addresses."),
					"groups":         ruleTexts("People by the groups that their provider gives."),
					"providers":      ruleTexts("People by the providers that authenticate them."),
					"service_tokens": ruleTexts("Machines by the names of their service tokens."),
				},
			},
			"where": ruleTexts("The place of the client: networks, `country:CH`, `asn:64500`."),
			"when": schema.SingleNestedAttribute{
				Optional: true, MarkdownDescription: "The times at which the rule holds.",
				Attributes: map[string]schema.Attribute{
					"not_before": ruleText("The first moment (RFC 3339)."),
					"not_after":  ruleText("The moment at which the rule ceases to hold (RFC 3339)."),
					"time_zone":  ruleText("The time zone of the windows: an IANA name."),
					"weekly":     weekly,
				},
			},
			"what": schema.SingleNestedAttribute{
				Optional: true, MarkdownDescription: "The request.",
				Attributes: map[string]schema.Attribute{
					"methods": ruleTexts("HTTP methods; `GET` stands for `HEAD`, too."),
					"paths":   ruleTexts("HTTP paths, each with everything beneath it; `*` within a segment, `**` for segments."),
					"ports":   schema.ListAttribute{Optional: true, ElementType: types.Int64Type, MarkdownDescription: "Public ports of clients' connections."},
				},
			},
			"ssh": schema.SingleNestedAttribute{
				Optional: true, MarkdownDescription: "Permissions of the ssh certificate of an admitted person; absent fields have the values of the authority.",
				Attributes: map[string]schema.Attribute{
					"extensions":    ruleTexts("The extensions; none when empty."),
					"force_command": ruleText("The one command that the certificate allows."),
				},
			},
		}},
	}
}

// policyDocument is the data source sallyport_policy_document.
var policyDocument = rest.Source{
	Name: "policy_document", Noun: "policy document",
	Schema: schema.Schema{
		MarkdownDescription: "Writes the rules of a policy as JSON, for `document` of `sallyport_policy`. It asks control nothing.",
		Attributes: map[string]schema.Attribute{
			"allow": rules("Rules that allow access. A rule holds where all that it says holds."),
			"deny":  rules("Rules that deny access, whatever any policy allows."),
			"json":  foundText("The rules as JSON."),
		},
	},
	Read: func(_ context.Context, _ *client.Client, written rest.Object) (rest.Object, error) {
		document := written
		delete(document, "json")
		document, _ = withoutNulls(document).(rest.Object)
		if len(document) == 0 {
			return nil, errors.New("the policy has no rule: write `allow` or `deny`")
		}
		text, err := json.Marshal(document)
		return rest.Object{"json": string(text)}, err
	},
}

// withoutNulls leaves out what is not written.
func withoutNulls(value any) any {
	switch value := value.(type) {
	case rest.Object:
		object := rest.Object{}
		for name, member := range value {
			if member != nil {
				object[name] = withoutNulls(member)
			}
		}
		return object
	case []any:
		list := make([]any, 0, len(value))
		for _, item := range value {
			list = append(list, withoutNulls(item))
		}
		return list
	}
	return value
}
