// Package rest makes resources of Terraform from descriptions of the API's objects.
package rest

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

// Kind describes one kind of the API's objects. Attributes have the names of the API's fields, apart from Fields.
type Kind struct {
	// Name is the type without its prefix: socket.
	Name string
	// Noun is what messages call it: "socket".
	Noun string
	// Schema is what users write.
	Schema schema.Schema
	// Collection is the path of creations; {ATTRIBUTE} stands for the value of an attribute.
	Collection string
	// Item is the path of one object; Collection and "/{id}" when empty.
	Item string
	// Import names the attributes in the id of an import, with slashes between them; only "id" when empty.
	Import []string
	// Fields has what is special about attributes, by their path: "regions.capacity.max_rps".
	Fields map[string]Field
	// HasETag says whether the object has an entity tag, which changes send back.
	HasETag bool
	// Create, Read, Update and Delete stand in for those of an object with a path of its own; see Call.
	Create, Read, Update func(context.Context, *Call) (Object, error)
	Delete               func(context.Context, *Call) error
	// Extend completes an object that control answered, before it becomes state.
	Extend func(context.Context, *Call, Object) error
	// Begin does what must come before the request of a change, and says whether it changed anything.
	Begin func(context.Context, *Call) (bool, error)
	// Complete does what creation and change need besides the request for the object, which it gets.
	Complete func(context.Context, *Call, Object) (Object, error)
	// ModifyPlan changes plans beyond what modifiers of attributes can.
	ModifyPlan func(context.Context, resource.ModifyPlanRequest, *resource.ModifyPlanResponse)
	// Validate checks what one attribute cannot see.
	Validate func(context.Context, resource.ValidateConfigRequest, *resource.ValidateConfigResponse)
}

// Object is an object of the API, as JSON decodes it.
type Object = map[string]any

// Field says what is special about an attribute.
type Field struct {
	// Name is the field's name in the API, where it is another one.
	Name string
	// Local attributes are not of the API: the state has what was planned, and Initial after an import.
	Local   bool
	Initial any
	// IsCreateOnly fields are in the request that makes the object, and in no other.
	IsCreateOnly bool
	// IsChangeOnly fields are in requests that change the object.
	IsChangeOnly bool
	// IsLast attributes are local, and as planned only once Complete has succeeded.
	IsLast bool
	// IsShared attributes may change by other resources of the same apply, and nobody minds.
	IsShared bool
	// SentWith names the attribute with whose change a write-only attribute is sent.
	SentWith string
	// Absent is what a change sends for an attribute that is no longer written; null, the default again, when nil.
	Absent any
	// Encode and Decode convert between the attribute's value and the field's.
	Encode, Decode func(any) (any, error)
	// IsSame says whether two values of the attribute mean the same, so that the state keeps the words of its owner.
	IsSame func(mine, theirs any) bool
}

// Call is what functions of a Kind get: values by the names of attributes, as JSON would have them.
type Call struct {
	Client *client.Client
	Kind   *Kind
	// Values are those of the plan, or of the state where nothing is planned.
	Values Object
	// Prior are those of the state; nil for a creation.
	Prior Object
	// Config are those that are written, with those of write-only attributes; nil where nothing is planned.
	Config Object
}

// New returns the resource of a kind.
func New(kind *Kind) func() resource.Resource {
	if kind.Item == "" {
		kind.Item = kind.Collection + "/{id}"
	}
	if len(kind.Import) == 0 {
		kind.Import = []string{"id"}
	}
	return func() resource.Resource { return &object{kind: kind} }
}
