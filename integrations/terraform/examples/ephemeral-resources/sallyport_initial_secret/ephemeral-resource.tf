resource "sallyport_service_token" "backup" {
  name = "backup"
}

# The secret of the token, in the run that makes the token.
ephemeral "sallyport_initial_secret" "backup" {
  id = sallyport_service_token.backup.id
}

resource "terraform_data" "vault" {
  triggers_replace = sallyport_service_token.backup.id
  provisioner "local-exec" {
    command     = "vault kv put secret/backup secret=\"$SECRET\""
    environment = { SECRET = coalesce(ephemeral.sallyport_initial_secret.backup.secret, "none") }
  }
}
