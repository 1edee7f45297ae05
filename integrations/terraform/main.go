// The program terraform-provider-sallyport: the provider of Sallyport for Terraform.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/sallyport/sallyport/integrations/terraform/internal/provider"
)

// version is that of the release; the linker sets it.
var version = "dev"

func main() {
	showVersion := flag.Bool("version", false, "print the version and end")
	flag.Parse()
	if *showVersion {
		fmt.Println("terraform-provider-sallyport", version)
		return
	}
	err := providerserver.Serve(context.Background(), provider.New(version), providerserver.ServeOpts{
		Address: provider.Address,
	})
	if err != nil {
		log.Fatal(err)
	}
}
