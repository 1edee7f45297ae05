package provider

import (
	"strings"

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
			MarkdownDescription: "A public key, with which a stock ssh client makes tunnels for the account of the provider's token. Every change makes a new one.",
			Attributes: map[string]schema.Attribute{
				"id":          stable("The id of the key."),
				"created_at":  stable("When the key was added."),
				"fingerprint": stable("`SHA256:` and the hash of the key, as ssh shows it."),
				"public_key":  parent("The public key as in a `.pub` file: Ed25519, ECDSA (P-256, P-384) or RSA of at least 2,048 bits."),
				"name": schema.StringAttribute{
					Optional: true, Computed: true, MarkdownDescription: "The name of the key; the key's comment when absent.",
					PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplaceIfConfigured(), stringplanmodifier.UseStateForUnknown()},
				},
			},
		},
		Read:   readByID,
		Fields: map[string]rest.Field{"public_key": {IsSame: sameKey}},
	}
}

// sameKey says whether two lines have the same key, whatever their comments are.
func sameKey(mine, theirs any) bool {
	one, _ := mine.(string)
	other, _ := theirs.(string)
	first, second := strings.Fields(one), strings.Fields(other)
	return len(first) >= 2 && len(second) >= 2 && first[0] == second[0] && first[1] == second[1]
}
