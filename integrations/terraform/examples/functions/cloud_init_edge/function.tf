variable "join_token" {
  type      = string
  ephemeral = true
}

# User data for a machine of a cloud. It is ephemeral, as its token is: neither plan nor state has it.
locals {
  user_data = provider::sallyport::cloud_init_edge({
    token     = var.join_token
    advertise = "192.0.2.10:443"
    program = {
      url    = "https://downloads.example.com/sallyport-x86_64-linux"
      sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
    }
    anycast = { allow = ["198.51.100.0/24"] }
  })
}
