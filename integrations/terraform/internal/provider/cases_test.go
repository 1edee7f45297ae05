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
	oidcCase,
	localPersonsCase,
	serviceTokenCase,
	sshKeyCase,
	organisationCase,
	memberCase,
	domainCase,
	zoneCase,
	zoneRecordCase,
	edgeCase,
	anycastPrefixCase,
	anycastPeerCase,
}

func TestMain(m *testing.M) { acctest.Exit(acctest.Main(m)) }

// TestResources makes, reads, changes, imports and loses every resource of the table.
func TestResources(t *testing.T) {
	acctest.RunCases(t, cases)
}
