# The token ends with the run.
ephemeral "sallyport_access_token" "check" {
  scopes = ["sockets:read"]
}

resource "terraform_data" "check" {
  provisioner "local-exec" {
    command     = "sallyport socket ls"
    environment = { SALLYPORT_TOKEN = ephemeral.sallyport_access_token.check.token }
  }
}
