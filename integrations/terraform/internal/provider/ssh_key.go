package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"

	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// sshKey is the resource sallyport_ssh_key.
func sshKey() *rest.Kind {
	return &rest.Kind{
		Name:       "ssh_key",
		Noun:       "ssh key",
		Collection: "/v1/ssh-keys",
		Schema: schema.Schema{
			MarkdownDescription: "An ssh key of the account whose token the provider has. Ssh clients with the key log in as the account and serve its sockets. Every change makes a new key.",
			Attributes: map[string]schema.Attribute{
				"id":          stable("The id of the key."),
				"created_at":  stable("When the key was added."),
				"fingerprint": stable("`SHA256:` and the hash of the key, as ssh shows it."),
				"public_key":  parent("The public key as in a `.pub` file: Ed25519, ECDSA (P-256, P-384) or RSA of at least 2,048 bits."),
				"name": schema.StringAttribute{
					Optional: true, Computed: true, MarkdownDescription: "The name of the key; the key's comment when absent.",
					PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
				},
			},
		},
		Read:   readListed,
		Extend: keepOwn("public_key", "name"),
		Fields: map[string]rest.Field{"public_key": {IsSame: sameTrimmed}},
	}
}
