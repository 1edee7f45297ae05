# Machines that register themselves: each has a tunnel of its own, and its user data has the credential of this tunnel.

locals {
  names = [for number in range(var.instances) : format("%s-%d", var.name, number + 1)]

  settings = { api = var.api, ca = var.ca, program = var.program, apt = var.apt, installed = var.installed }
  # User data with no real secret: a wrong setting ends the plan, and makes no tunnel whose credential nobody would get.
  sample = provider::sallyport::cloud_init_origin(merge(local.settings, {
    services = [{
      name              = "sample"
      socket_id         = "sample"
      tunnel_id         = "00000000-0000-4000-8000-000000000000"
      tunnel_credential = "spc_sample"
      port              = var.port
    }]
  }))
}

resource "sallyport_tunnel" "this" {
  for_each  = toset(local.names)
  socket_id = var.socket_id
  name      = each.key
  labels    = var.labels

  credential_version = var.credential_version

  lifecycle {
    precondition {
      condition     = local.sample != ""
      error_message = "There is no user data."
    }
  }
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
    for name, credential in local.secrets : name => credential == null ? null : provider::sallyport::cloud_init_origin(merge(local.settings, {
      services = [{
        name              = name
        socket_id         = var.socket_id
        tunnel_id         = sallyport_tunnel.this[name].id
        tunnel_credential = credential
        port              = var.port
      }]
    }))
  }
}
