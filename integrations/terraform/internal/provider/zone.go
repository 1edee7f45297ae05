package provider

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// domain is the resource sallyport_domain.
func domain() *rest.Kind {
	return &rest.Kind{
		Name:       "domain",
		Noun:       "domain",
		Collection: "/v1/domains",
		Item:       "/v1/domains/{name}",
		Import:     []string{"name"},
		Schema: schema.Schema{
			MarkdownDescription: "A domain of the organisation. Set its `records` at the name service of the domain: control looks for them every minute, and the domain is verified then.",
			Attributes: map[string]schema.Attribute{
				"id":         stable("The id of the domain."),
				"created_at": stable("When the domain was added."),
				"name":       parent("The name, such as `app.example.com`, or `*.example.com` for all names directly below `example.com`. Another name makes a new domain."),
				"records": schema.ListNestedAttribute{
					Computed: true, MarkdownDescription: "The records to set at the name service of the domain.",
					PlanModifiers: []planmodifier.List{listplanmodifier.UseStateForUnknown()},
					NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
						"name":    schema.StringAttribute{Computed: true, MarkdownDescription: "The name of the record."},
						"type":    schema.StringAttribute{Computed: true, MarkdownDescription: "The type of the record: `TXT`, `CNAME`, `A` or `AAAA`."},
						"value":   schema.StringAttribute{Computed: true, MarkdownDescription: "The content of the record."},
						"purpose": schema.StringAttribute{Computed: true, MarkdownDescription: "What the record is for: `ownership`, `address` or `certificate`."},
					}},
				},
			},
		},
		Fields: map[string]rest.Field{"name": {IsSame: sameDomain}},
	}
}

// sameDomain says whether two names are the same but for upper and lower case and a dot at their ends.
func sameDomain(mine, theirs any) bool {
	one, isText := mine.(string)
	other, isOther := theirs.(string)
	return isText && isOther && strings.EqualFold(strings.TrimSuffix(one, "."), strings.TrimSuffix(other, "."))
}

// zone is the resource sallyport_zone.
func zone() *rest.Kind {
	algorithm := withModifier(choice("How the keys sign. Another algorithm makes a new zone.", "ecdsa-p256", "ed25519"), stringplanmodifier.RequiresReplace())
	return &rest.Kind{
		Name:       "zone",
		Noun:       "zone",
		Collection: "/v1/zones",
		Item:       "/v1/zones/{name}",
		Import:     []string{"name"},
		Schema: schema.Schema{
			MarkdownDescription: "A zone that the name server of the installation answers for. Its name is a verified domain of the organisation. Name `name_servers` and `ds` at the parent.",
			Attributes: map[string]schema.Attribute{
				"id":         stable("The id of the zone."),
				"created_at": stable("When the zone was made."),
				"name":       parent("The name: a verified domain of the organisation. Another name makes a new zone."),
				"signed":     fixedFlag(true, "Whether the zone is signed (DNSSEC). Another value makes a new zone."),
				"algorithm":  algorithm,
				"split_keys": fixedFlag(false, "Whether one key signs the keys (KSK) and another one the records (ZSK). Another value makes a new zone."),
				"name_servers": schema.ListAttribute{
					Computed: true, ElementType: types.StringType, MarkdownDescription: "The name servers to name at the parent, as NS records.",
					PlanModifiers: []planmodifier.List{listplanmodifier.UseStateForUnknown()},
				},
				"ds": schema.ListAttribute{
					Computed: true, ElementType: types.StringType, MarkdownDescription: "The DS records to set at the parent. They change with a rollover of keys.",
					PlanModifiers: []planmodifier.List{listplanmodifier.UseStateForUnknown()},
				},
			},
		},
		Fields: map[string]rest.Field{"name": {IsSame: sameDomain}},
		Extend: extendZone,
	}
}

func fixedFlag(value bool, description string) schema.BoolAttribute {
	attribute := flagOr(value, description)
	attribute.Default = booldefault.StaticBool(value)
	attribute.PlanModifiers = []planmodifier.Bool{boolplanmodifier.RequiresReplace()}
	return attribute
}

// extendZone says how a zone is signed, which the API says by its keys.
func extendZone(_ context.Context, call *rest.Call, answer rest.Object) error {
	keys := list(answer["keys"])
	answer["signed"] = len(keys) > 0
	answer["algorithm"], answer["split_keys"] = call.Values["algorithm"], call.Values["split_keys"]
	if len(keys) == 0 {
		if call.Values["algorithm"] == nil {
			answer["algorithm"], answer["split_keys"] = "ecdsa-p256", false
		}
		return nil
	}
	key, _ := keys[0].(rest.Object)
	role, _ := key["role"].(string)
	algorithm, _ := key["algorithm"].(string)
	answer["split_keys"] = role != "csk"
	answer["algorithm"] = strings.ToLower(algorithm)
	return nil
}

// zoneRecord is the resource sallyport_zone_record.
func zoneRecord() *rest.Kind {
	kind := parent("The type, such as `A`, `TXT` or `MX`. `ALIAS` stands for the addresses of another name, also at the zone itself; `EDGES` stands for the addresses of the edges.")
	kind.Validators = []validator.String{stringvalidator.LengthAtLeast(1)}
	ttl := numberOr(300, "How long others may keep the record, in seconds.")
	ttl.PlanModifiers = []planmodifier.Int64{int64planmodifier.RequiresReplace()}
	return &rest.Kind{
		Name:       "zone_record",
		Noun:       "record",
		Collection: "/v1/zones/{zone}/records",
		Import:     []string{"zone", "id"},
		Schema: schema.Schema{
			MarkdownDescription: "A record of a zone. Every change makes a new record. After an import, the name is the one below the zone (`www`, or `@`), and the value is as control writes it.",
			Attributes: map[string]schema.Attribute{
				"id":    stable("The id of the record."),
				"zone":  parent("The name of the zone."),
				"name":  parent("The name: `@` for the zone itself, a name below it such as `www`, or a full name that ends with a dot."),
				"type":  kind,
				"ttl":   ttl,
				"value": parent("The content, as in a master file."),
			},
		},
		Read: readListed,
		Extend: func(ctx context.Context, call *rest.Call, answer rest.Object) error {
			of := strings.ToLower(strings.TrimSuffix(call.Text("zone"), "."))
			name, _ := answer["name"].(string)
			name = strings.TrimSuffix(name, ".")
			if name == of {
				answer["name"] = "@"
			} else {
				answer["name"] = strings.TrimSuffix(name, "."+of)
			}
			answer["zone"] = call.Values["zone"]
			return keepOwn("name", "type", "value", "ttl")(ctx, call, answer)
		},
	}
}
