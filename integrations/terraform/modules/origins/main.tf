# Machines that register themselves: each has a tunnel of its own, and its user data has the credential of this tunnel.

locals {
  names = [for number in range(var.instances) : format("%s-%d", var.name, number + 1)]
}

resource "sallyport_tunnel" "this" {
  for_each  = toset(local.names)
  socket_id = var.socket_id
  name      = each.key
  labels    = var.labels

  credential_version = var.credential_version
}

# The credential in the run that makes the tunnel, or another credential of it. Other runs neither get nor make one.
ephemeral "sallyport_initial_secret" "this" {
  for_each = sallyport_tunnel.this
  id       = each.value.id
}

locals {
  secrets = { for name in local.names : name => ephemeral.sallyport_initial_secret.this[name].secret }

  # Only a machine whose credential this run made needs user data.
  own = {
    for name, credential in local.secrets : name => credential == null ? null : provider::sallyport::cloud_init_origin({
      api       = var.api
      ca        = var.ca
      program   = var.program
      apt       = var.apt
      installed = var.installed
      services = [{
        name              = name
        socket_id         = var.socket_id
        tunnel_id         = sallyport_tunnel.this[name].id
        tunnel_credential = credential
        port              = var.port
      }]
    })
  }
}
