package provider

import (
	"context"
	"encoding/json"

	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// policyDocumentData is the data source sallyport_policy_document: the rules of a policy, checked by their types.
func policyDocumentData() *rest.Data {
	return &rest.Data{
		Name: "policy_document", Noun: "document of a policy",
		Schema: schema.Schema{
			MarkdownDescription: "The rules of a policy as JSON, for `document` of `sallyport_policy`. Blocks `allow` and `deny` are rules; all parts of a rule must hold.",
			Attributes: map[string]schema.Attribute{
				"json": read("The document."),
			},
			Blocks: map[string]schema.Block{
				"allow": rules("A rule that allows access."),
				"deny":  rules("A rule that denies access, whatever any policy allows."),
			},
		},
		Read: func(_ context.Context, _ *client.Client, written rest.Object) (rest.Object, error) {
			document := rest.Object{}
			for _, name := range []string{"allow", "deny"} {
				if rules, _ := withoutNulls(written[name]).([]any); len(rules) > 0 {
					document[name] = rules
				}
			}
			text, err := json.Marshal(document)
			return rest.Object{"json": string(text)}, err
		},
	}
}

// rules returns the blocks of rules.
func rules(description string) schema.ListNestedBlock {
	words := func(description string) schema.ListAttribute {
		return schema.ListAttribute{Optional: true, ElementType: types.StringType, MarkdownDescription: description}
	}
	word := func(description string) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, MarkdownDescription: description}
	}
	return schema.ListNestedBlock{
		MarkdownDescription: description,
		NestedObject: schema.NestedBlockObject{Attributes: map[string]schema.Attribute{
			"name":  word("The name of the rule in the explanation of a decision."),
			"where": words("The place of the client: networks, `country:CH`, `asn:64500`."),
			"who": schema.SingleNestedAttribute{
				Optional: true, MarkdownDescription: "The identity of the client. One of the parts must hold.",
				Attributes: map[string]schema.Attribute{
					"anyone":         schema.BoolAttribute{Optional: true, MarkdownDescription: "Everybody, also without a login."},
					"emails":         words("E-mail addresses of persons."),
					"email_domains":  words("Domains of e-mail addresses."),
					"groups":         words("Groups of persons."),
					"providers":      words("Identity providers, by name."),
					"service_tokens": words("Service tokens, by name."),
				},
			},
			"when": schema.SingleNestedAttribute{
				Optional: true, MarkdownDescription: "The times at which the rule holds.",
				Attributes: map[string]schema.Attribute{
					"not_before": word("The first moment (RFC 3339)."),
					"not_after":  word("The moment at which the rule ceases to hold (RFC 3339)."),
					"time_zone":  word("The time zone of the windows, such as `Europe/Zurich`."),
					"weekly": schema.ListNestedAttribute{
						Optional: true, MarkdownDescription: "Windows of the week.",
						NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
							"days": words("`mon` to `sun`; every day when absent."),
							"from": word("The beginning, such as `08:00`."),
							"to":   word("The end; at or before `from`: on the next day."),
						}},
					},
				},
			},
			"what": schema.SingleNestedAttribute{
				Optional: true, MarkdownDescription: "The request.",
				Attributes: map[string]schema.Attribute{
					"methods": words("HTTP methods; `GET` stands for `HEAD`, too."),
					"paths":   words("HTTP paths, each with everything beneath it; `*` within a segment, `**` for segments."),
					"ports":   schema.ListAttribute{Optional: true, ElementType: types.Int64Type, MarkdownDescription: "Public ports of clients' connections."},
				},
			},
			"ssh": schema.SingleNestedAttribute{
				Optional: true, MarkdownDescription: "Permissions of the ssh certificate of an admitted person.",
				Attributes: map[string]schema.Attribute{
					"extensions":    words("The extensions, such as `permit-pty`; none when empty."),
					"force_command": word("The one command that the certificate allows."),
				},
			},
		}},
	}
}

// withoutNulls leaves out what is not written.
func withoutNulls(value any) any {
	switch value := value.(type) {
	case rest.Object:
		fields := rest.Object{}
		for name, field := range value {
			if field != nil {
				fields[name] = withoutNulls(field)
			}
		}
		return fields
	case []any:
		items := make([]any, 0, len(value))
		for _, item := range value {
			items = append(items, withoutNulls(item))
		}
		return items
	}
	return value
}
