resource "sallyport_service_token" "backup" {
  name = "backup"
}

ephemeral "sallyport_service_token_certificate" "backup" {
  service_token_id = sallyport_service_token.backup.id
  days             = 30
}

resource "terraform_data" "deploy" {
  provisioner "local-exec" {
    command = "umask 077; printf %s \"$KEY\" >key.pem; printf %s \"$CERTIFICATE\" >certificate.pem"
    environment = {
      KEY         = ephemeral.sallyport_service_token_certificate.backup.private_key
      CERTIFICATE = ephemeral.sallyport_service_token_certificate.backup.certificate
    }
  }
}
