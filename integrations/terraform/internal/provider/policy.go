package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
	"github.com/sallyport/sallyport/integrations/terraform/internal/rest"
)

// policyName checks the name of a policy.
var policyName = stringvalidator.RegexMatches(regexp.MustCompile(`^[a-z][a-z0-9-]{0,63}$`),
	"the name of a policy has 1 to 64 lower-case letters, digits and hyphens, beginning with a letter")

// policy is the resource sallyport_policy.
func policy() *rest.Kind {
	return &rest.Kind{
		Name:       "policy",
		Noun:       "policy",
		Collection: "/v1/policies",
		HasETag:    true,
		Schema: schema.Schema{
			MarkdownDescription: "A policy: named rules for access, which `policies` of a socket or `sallyport_policy_attachment` attach.",
			Attributes: map[string]schema.Attribute{
				"id":         stable("The id of the policy."),
				"created_at": stable("When the policy was made."),
				"name": schema.StringAttribute{
					Required: true, Validators: []validator.String{policyName},
					MarkdownDescription: "The name: 1 to 64 lower-case letters, digits and hyphens, beginning with a letter.",
				},
				"document": schema.StringAttribute{
					Required: true, Validators: []validator.String{jsonObject{}},
					MarkdownDescription: "The rules as JSON: from `jsonencode`, or from the data source `sallyport_policy_document`.",
				},
				"labels": labels(),
				"force": schema.BoolAttribute{
					Optional: true, WriteOnly: true,
					MarkdownDescription: "Whether a change may have a socket deny every client. It is not kept in the state.",
				},
			},
		},
		Delete: deletePolicy,
		Fields: map[string]rest.Field{
			"document": {Encode: encodeJSON, Decode: decodeJSON, IsSame: sameDocument},
			"force":    {IsChangeOnly: true},
		},
	}
}

// encodeJSON makes an object of its text.
func encodeJSON(value any) (any, error) {
	text, _ := value.(string)
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return nil, fmt.Errorf("it is no JSON object: %w", err)
	}
	if object == nil {
		return nil, errors.New("it is no JSON object, but null")
	}
	return object, nil
}

// decodeJSON makes text of an object, as jsonencode does.
func decodeJSON(value any) (any, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

// sameDocument says whether two texts are the same rules.
func sameDocument(mine, theirs any) bool {
	one, err := encodeJSON(mine)
	other, otherErr := encodeJSON(theirs)
	return err == nil && otherErr == nil && reflect.DeepEqual(document(one, ""), document(other, ""))
}

// deletePolicy deletes a policy, or says what to do where it is attached: Terraform deletes it before it changes
// what no longer refers to it.
func deletePolicy(ctx context.Context, call *rest.Call) error {
	_, err := call.Client.Do(ctx, http.MethodDelete, call.Path(call.Kind.Item), nil, nil)
	if client.HasCode(err, "policy-attached") {
		return fmt.Errorf("%w; in Terraform: take it out of `policies` (the last one: `policies = []`) by an apply of its own, or give it `lifecycle { create_before_destroy = true }` beforehand", err)
	}
	return err
}
