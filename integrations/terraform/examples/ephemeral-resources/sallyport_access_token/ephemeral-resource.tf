ephemeral "sallyport_access_token" "deploy" {
  scopes = ["sockets:read"]
}

resource "terraform_data" "smoke_test" {
  provisioner "local-exec" {
    command     = "./smoke-test"
    environment = { SALLYPORT_TOKEN = ephemeral.sallyport_access_token.deploy.token }
  }
}
