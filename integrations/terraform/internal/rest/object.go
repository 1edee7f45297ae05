package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

// maxMatches bounds how often a change is tried again after something else changed the object between read and change.
const maxMatches = 4

// object is the resource of a kind.
type object struct {
	kind   *Kind
	client *client.Client
}

var (
	_ resource.ResourceWithConfigure      = &object{}
	_ resource.ResourceWithImportState    = &object{}
	_ resource.ResourceWithModifyPlan     = &object{}
	_ resource.ResourceWithValidateConfig = &object{}
)

// Metadata names the resource.
func (o *object) Metadata(_ context.Context, request resource.MetadataRequest, response *resource.MetadataResponse) {
	response.TypeName = request.ProviderTypeName + "_" + o.kind.Name
}

// Schema describes the resource.
func (o *object) Schema(_ context.Context, _ resource.SchemaRequest, response *resource.SchemaResponse) {
	response.Schema = o.kind.Schema
}

// Configure takes the client that the provider made.
func (o *object) Configure(_ context.Context, request resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	if api, ok := request.ProviderData.(*client.Client); ok {
		o.client = api
	}
}

// ModifyPlan lets the kind change a plan.
func (o *object) ModifyPlan(ctx context.Context, request resource.ModifyPlanRequest, response *resource.ModifyPlanResponse) {
	o.keepWords(ctx, request, response)
	if o.kind.ModifyPlan != nil {
		o.kind.ModifyPlan(ctx, request, response)
	}
}

// keepWords plans no change where the words of the configuration mean what the state says.
func (o *object) keepWords(ctx context.Context, request resource.ModifyPlanRequest, response *resource.ModifyPlanResponse) {
	if request.Plan.Raw.IsNull() || request.State.Raw.IsNull() {
		return
	}
	planned := o.call(request.Plan.Raw, request.State.Raw)
	for name, field := range o.kind.Fields {
		mine, theirs := at(planned.Values, name), at(planned.Prior, name)
		if field.IsSame == nil || mine == nil || theirs == nil || reflect.DeepEqual(mine, theirs) || !field.IsSame(mine, theirs) {
			continue
		}
		where := path.Empty()
		for step, part := range strings.Split(name, ".") {
			if step == 0 {
				where = path.Root(part)
			} else {
				where = where.AtName(part)
			}
		}
		var value attr.Value
		response.Diagnostics.Append(request.State.GetAttribute(ctx, where, &value)...)
		response.Diagnostics.Append(response.Plan.SetAttribute(ctx, where, value)...)
	}
}

// at returns the value at a path through objects, or nil.
func at(values Object, dotted string) any {
	first, rest, isDeeper := strings.Cut(dotted, ".")
	if !isDeeper {
		return values[first]
	}
	inner, _ := values[first].(Object)
	return at(inner, rest)
}

// ValidateConfig lets the kind check what is written.
func (o *object) ValidateConfig(ctx context.Context, request resource.ValidateConfigRequest, response *resource.ValidateConfigResponse) {
	if o.kind.Validate != nil {
		o.kind.Validate(ctx, request, response)
	}
}

func (o *object) call(values, prior tftypes.Value) *Call {
	call := &Call{Client: o.client, Kind: o.kind}
	call.Values, _ = Plain(values).(Object)
	call.Prior, _ = Plain(prior).(Object)
	return call
}

// Create makes the object.
func (o *object) Create(ctx context.Context, request resource.CreateRequest, response *resource.CreateResponse) {
	call := o.call(request.Plan.Raw, tftypes.Value{})
	call.Config, _ = Plain(request.Config.Raw).(Object)
	body, err := o.kind.body(widen(o.kind.Schema.Attributes), "", request.Plan.Raw, request.Config.Raw)
	if err != nil {
		o.fail(&response.Diagnostics, "create", call, err)
		return
	}
	for name, field := range o.kind.Fields {
		if field.IsChangeOnly {
			delete(body, o.kind.fieldName(name, name))
		}
	}
	answer, err := o.create(ctx, call, body)
	if err != nil {
		o.fail(&response.Diagnostics, "create", call, err)
		return
	}
	// From here on the object is there: whatever fails next, the state has it.
	answer, err = o.complete(ctx, call, answer)
	state, failed := o.kind.stateAfter(ctx, answer, request.Plan.Raw)
	if failed != nil {
		o.fail(&response.Diagnostics, "create", call, failed)
		return
	}
	response.State.Raw = state
	if err != nil {
		o.fail(&response.Diagnostics, "create", call, err)
	}
}

func (o *object) create(ctx context.Context, call *Call, body Object) (Object, error) {
	if o.kind.Create != nil {
		return o.kind.Create(ctx, call)
	}
	answer := Object{}
	_, err := o.client.Create(ctx, call.Path(o.kind.Collection), body, &answer)
	if client.HasCode(err, "secret-already-shown") {
		// The first answer was lost, and the object is there.
		answer = Object{}
		_, err = o.client.Get(ctx, client.AsProblem(err).Location, &answer)
	}
	return answer, err
}

// complete runs the functions of the kind after a creation or change. The object stays what it was where they fail.
func (o *object) complete(ctx context.Context, call *Call, answer Object) (Object, error) {
	if o.kind.Complete != nil {
		completed, err := o.kind.Complete(ctx, call, answer)
		if completed != nil {
			answer = completed
		}
		if err != nil {
			return answer, err
		}
	}
	if o.kind.Extend != nil {
		return answer, o.kind.Extend(ctx, call, answer)
	}
	return answer, nil
}

func (o *object) read(ctx context.Context, call *Call) (Object, string, error) {
	if o.kind.Read != nil {
		answer, err := o.kind.Read(ctx, call)
		return answer, "", err
	}
	answer := Object{}
	got, err := o.client.Get(ctx, call.Path(o.kind.Item), &answer)
	if err != nil {
		return nil, "", err
	}
	if o.kind.Extend != nil {
		err = o.kind.Extend(ctx, call, answer)
	}
	return answer, got.ETag, err
}

// Read brings the state up to date.
func (o *object) Read(ctx context.Context, request resource.ReadRequest, response *resource.ReadResponse) {
	call := o.call(request.State.Raw, request.State.Raw)
	answer, _, err := o.read(ctx, call)
	if client.IsGone(err) {
		response.State.RemoveResource(ctx)
		return
	}
	if err == nil {
		response.State.Raw, err = o.kind.state(ctx, answer, request.State.Raw)
	}
	if err != nil {
		response.State.Raw = request.State.Raw
		o.fail(&response.Diagnostics, "read", call, err)
	}
}

// Update changes the object where it still is what the plan has seen.
func (o *object) Update(ctx context.Context, request resource.UpdateRequest, response *resource.UpdateResponse) {
	call := o.call(request.Plan.Raw, request.State.Raw)
	call.Config, _ = Plain(request.Config.Raw).(Object)
	answer, err := o.update(ctx, call, request)
	if err == nil {
		answer, err = o.complete(ctx, call, answer)
		if state, failed := o.kind.stateAfter(ctx, answer, request.Plan.Raw); failed == nil {
			response.State.Raw = state
			if err != nil {
				response.State.Raw = o.kind.withoutLast(state, request.State.Raw)
			}
		} else {
			err = errors.Join(err, failed)
		}
	}
	if err != nil {
		o.fail(&response.Diagnostics, "change", call, err)
	}
}

func (o *object) update(ctx context.Context, call *Call, request resource.UpdateRequest) (Object, error) {
	if o.kind.Update != nil {
		return o.kind.Update(ctx, call)
	}
	body, err := o.kind.changes(request.State.Raw, request.Plan.Raw, request.Config.Raw)
	if err != nil {
		return nil, err
	}
	var refused error
	for try := range maxMatches {
		found, tag, isDone, err := o.unchanged(ctx, request)
		if err != nil || isDone || len(body) == 0 || o.isOnlyChangeOnly(body) {
			return found, err
		}
		if try == 0 && o.kind.Begin != nil {
			hasBegun, err := o.kind.Begin(ctx, call)
			if err != nil {
				return nil, err
			}
			if hasBegun {
				continue // for the tag after it
			}
		}
		answer := Object{}
		_, err = o.client.Do(ctx, http.MethodPatch, call.Path(o.kind.Item), body, &answer, client.IfMatch(tag))
		problem := client.AsProblem(err)
		if problem == nil || problem.Status != http.StatusPreconditionFailed {
			return answer, err
		}
		if done, ok := o.isDoneAlready(ctx, request); ok {
			return done, nil
		}
		refused = problem // by something between the read and the change: look whether the plan still holds
	}
	return nil, refused
}

// unchanged reads the object and its tag, and returns an error where the object is neither what the plan has seen
// nor what it wants.
func (o *object) unchanged(ctx context.Context, request resource.UpdateRequest) (found Object, tag string, isDone bool, err error) {
	found, tag, err = o.read(ctx, o.call(request.State.Raw, request.State.Raw))
	if err != nil {
		return nil, "", false, err
	}
	now, err := o.kind.state(ctx, found, request.State.Raw)
	if err != nil {
		return nil, "", false, err
	}
	changed := o.owned(differences(request.State.Raw, now))
	if len(changed) > 0 {
		if done, ok := o.isDoneAlready(ctx, request); ok {
			return done, "", true, nil
		}
		return nil, "", false, fmt.Errorf("%s changed elsewhere since the plan was made, and nothing was done: plan again", strings.Join(changed, ", "))
	}
	if !o.kind.HasETag {
		tag = ""
	}
	return found, tag, false, nil
}

func (o *object) isOnlyChangeOnly(body Object) bool {
	for name := range body {
		if !o.kind.Fields[name].IsChangeOnly {
			return false
		}
	}
	return true
}

// owned leaves out attributes that other resources may change.
func (o *object) owned(attributes []string) []string {
	return slices.DeleteFunc(attributes, func(name string) bool { return o.kind.Fields[name].IsShared })
}

// isDoneAlready returns the object where it is as planned although a change was refused: the answer of a first try was
// lost, or somebody else did the same.
func (o *object) isDoneAlready(ctx context.Context, request resource.UpdateRequest) (Object, bool) {
	found, _, err := o.read(ctx, o.call(request.State.Raw, request.State.Raw))
	if err != nil {
		return nil, false
	}
	now, err := o.kind.state(ctx, found, request.Plan.Raw)
	return found, err == nil && len(o.owned(differences(request.Plan.Raw, now))) == 0
}

// Delete removes the object.
func (o *object) Delete(ctx context.Context, request resource.DeleteRequest, response *resource.DeleteResponse) {
	call := o.call(request.State.Raw, request.State.Raw)
	var err error
	if o.kind.Delete != nil {
		err = o.kind.Delete(ctx, call)
	} else {
		_, err = o.client.Do(ctx, http.MethodDelete, call.Path(o.kind.Item), nil, nil)
	}
	if err != nil && !client.IsGone(err) {
		o.fail(&response.Diagnostics, "delete", call, err)
	}
}

// ImportState finds an object by its id, or by what else its path takes.
func (o *object) ImportState(ctx context.Context, request resource.ImportStateRequest, response *resource.ImportStateResponse) {
	parts := strings.Split(request.ID, "/")
	if len(parts) != len(o.kind.Import) || strings.Contains("/"+request.ID+"/", "//") {
		response.Diagnostics.AddError(
			fmt.Sprintf("Cannot import the %s", o.kind.Noun),
			fmt.Sprintf("%q is no id for the import of sallyport_%s: write %s.", request.ID, o.kind.Name, strings.ToUpper(strings.Join(o.kind.Import, "/"))),
		)
		return
	}
	values := Object{}
	for index, name := range o.kind.Import {
		values[name] = parts[index]
	}
	call := &Call{Client: o.client, Kind: o.kind, Values: values, Prior: values}
	answer, _, err := o.read(ctx, call)
	if client.IsGone(err) {
		response.Diagnostics.AddError(
			fmt.Sprintf("Cannot import the %s", o.kind.Noun),
			fmt.Sprintf("Control says of %q: %s.", request.ID, err),
		)
		return
	}
	if err == nil {
		response.State.Raw, err = o.kind.state(ctx, answer, tftypes.NewValue(o.kind.Schema.Type().TerraformType(ctx), nil))
	}
	if err != nil {
		o.fail(&response.Diagnostics, "import", call, err)
	}
}

// fail reports an error at the attributes that it is about.
func (o *object) fail(to *diag.Diagnostics, verb string, call *Call, err error) {
	summary := fmt.Sprintf("Cannot %s the %s%s", verb, o.kind.Noun, call.label())
	text := o.hide(call, Sentence(err))
	if problem := client.AsProblem(err); problem != nil && len(problem.Errors) == 1 {
		field := problem.Errors[0].Field
		if name := o.kind.attributeOf(field); name != "" {
			if name == field { // the line of the attribute says so
				text = o.hide(call, Sentence(errors.New(strings.TrimPrefix(err.Error(), field+": "))))
			} else if detail, has := strings.CutPrefix(err.Error(), field+": "); has {
				first := len(o.kind.fieldName(name, name))
				text = o.hide(call, Sentence(errors.New("`"+name+field[first:]+"`: "+detail)))
			}
			to.AddAttributeError(path.Root(name), summary, text)
			return
		}
	}
	to.AddError(summary, text)
}

// hide takes the values of write-only attributes out of a message, which may be the words of a server.
func (o *object) hide(call *Call, text string) string {
	for _, value := range writeOnly(widen(o.kind.Schema.Attributes), call.Config) {
		text = strings.ReplaceAll(text, value, "(secret)")
	}
	return text
}

// writeOnly returns the texts of write-only attributes.
func writeOnly(attributes map[string]attribute, values Object) []string {
	found := []string{}
	for name, of := range attributes {
		switch value := values[name].(type) {
		case string:
			if of.IsWriteOnly() && value != "" {
				found = append(found, value)
			}
		case Object:
			found = append(found, writeOnly(children(of), value)...)
		}
	}
	return found
}

// Sentence returns an error as a sentence.
func Sentence(err error) string {
	text := err.Error()
	if text == "" {
		return text
	}
	_, first := utf8.DecodeRuneInString(text)
	text = strings.ToUpper(text[:first]) + text[first:]
	if !strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "?") {
		text += "."
	}
	return text
}

// label is how messages tell objects of a kind apart.
func (c *Call) label() string {
	for _, name := range []string{"name", "id"} {
		if text, ok := c.Values[name].(string); ok {
			return fmt.Sprintf(" %q", text)
		}
	}
	return ""
}

// attributeOf returns the attribute of the schema that a field of the API belongs to; "" for none.
func (k *Kind) attributeOf(field string) string {
	first, _, _ := strings.Cut(field, ".")
	first, _, _ = strings.Cut(first, "[")
	for name := range k.Schema.Attributes {
		if k.fieldName(name, name) == first {
			return name
		}
	}
	return ""
}

// Path fills the values of attributes into a path.
func (c *Call) Path(pattern string) string {
	var filled strings.Builder
	for {
		before, rest, has := strings.Cut(pattern, "{")
		filled.WriteString(before)
		if !has {
			return filled.String()
		}
		name, after, _ := strings.Cut(rest, "}")
		value := c.Values[name]
		if text, ok := value.(string); ok {
			filled.WriteString(url.PathEscape(text))
		} else if text, err := json.Marshal(value); err == nil {
			filled.WriteString(url.PathEscape(string(text)))
		}
		pattern = after
	}
}

// Text returns the text of a value; "" where it has none.
func (c *Call) Text(name string) string {
	text, _ := c.Values[name].(string)
	return text
}
