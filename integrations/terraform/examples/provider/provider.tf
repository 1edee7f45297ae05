terraform {
  required_version = ">= 1.11"
  required_providers {
    sallyport = {
      source = "sallyport.dev/sallyport/sallyport"
    }
  }
}

# The token comes from SALLYPORT_TOKEN: it is nobody's business here.
provider "sallyport" {
  api = "https://api.example.com"
}
