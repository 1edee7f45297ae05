terraform {
  # Ephemeral values, and write-only arguments.
  required_version = ">= 1.11"
  required_providers {
    sallyport = {
      source = "sallyport.dev/sallyport/sallyport"
    }
  }
}
