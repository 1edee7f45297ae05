resource "sallyport_edge" "eu" {
  name   = "eu-1"
  region = "eu"
}

ephemeral "sallyport_initial_secret" "eu" {
  id = sallyport_edge.eu.id
}

locals {
  user_data = provider::sallyport::cloud_init_edge({
    token     = ephemeral.sallyport_initial_secret.eu.secret
    region    = "eu"
    advertise = "192.0.2.10:443"
    program = {
      url    = "https://downloads.example.com/sallyport-x86_64-linux"
      sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
    }
  })
}
