package provider_test

import (
	"testing"

	"github.com/sallyport/sallyport/integrations/terraform/internal/acctest"
)

// cases are all resources of the provider, one a line; the tests of acceptance run them together.
var cases = []func() acctest.Case{
	socketCase,
	tlsSocketCase,
	identitySocketCase,
	tunnelCase,
	originCase,
	policyCase,
	policyAttachmentCase,
	policyEverywhereCase,
	identityProviderCase,
	githubProviderCase,
	serviceTokenCase,
	memberCase,
	sshKeyCase,
	organisationCase,
	domainCase,
	zoneCase,
	zoneRecordCase,
	zoneRecordTextCase,
}

func TestMain(m *testing.M) { acctest.Exit(acctest.Main(m)) }

// TestResources makes, reads, changes, imports and loses every resource of the table.
func TestResources(t *testing.T) {
	acctest.RunCases(t, cases)
}
