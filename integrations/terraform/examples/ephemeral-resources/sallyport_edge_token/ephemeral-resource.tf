ephemeral "sallyport_edge_token" "eu_1" {
  name    = "eu-1"
  region  = "eu"
  minutes = 30
}

# Give this to the machine by a write-only argument or by a provisioner.
locals {
  user_data = provider::sallyport::cloud_init_edge({
    token     = ephemeral.sallyport_edge_token.eu_1.token
    advertise = "192.0.2.10:443"
    installed = true
  })
}
