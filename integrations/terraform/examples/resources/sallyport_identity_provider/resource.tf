variable "client_secret" {
  type      = string
  ephemeral = true
}

resource "sallyport_identity_provider" "google" {
  name                     = "google"
  kind                     = "google"
  client_id                = "1234567890.apps.googleusercontent.com"
  client_secret_wo         = var.client_secret
  client_secret_wo_version = 1 # a new secret takes a new number
}

# What to register at the provider.
output "redirect_uri" {
  value = sallyport_identity_provider.google.redirect_uri
}
