# Edges of one region: a name and a join token for each, and the user data that makes a fresh machine this edge.

locals {
  names = [for number in range(var.instances) : format("%s-%d", var.region, number + 1)]

  settings = {
    region      = var.region
    environment = var.environment
    anycast     = length(var.anycast_allow) == 0 ? null : { allow = var.anycast_allow }
    program     = var.program
    apt         = var.apt
    installed   = var.installed
  }
  # User data with no real secret: a wrong setting ends the plan, and makes no edge whose token nobody would get.
  sample = {
    for name in local.names : name => provider::sallyport::cloud_init_edge(merge(local.settings, {
      token     = "spe_sample"
      advertise = lookup(var.advertise, name, null)
    }))
  }
}

resource "sallyport_edge" "this" {
  for_each      = toset(local.names)
  name          = each.key
  region        = var.region
  token_minutes = var.token_minutes

  lifecycle {
    precondition {
      condition     = local.sample[each.key] != ""
      error_message = "There is no user data."
    }
  }
}

# The join token in the run that makes the edge. Later runs neither get it nor make another one.
ephemeral "sallyport_initial_secret" "this" {
  for_each = sallyport_edge.this
  id       = each.value.id
}

locals {
  secrets = { for name in local.names : name => ephemeral.sallyport_initial_secret.this[name].secret }

  # Only a machine whose edge this run made needs user data.
  own = {
    for name, token in local.secrets : name => token == null ? null : provider::sallyport::cloud_init_edge(merge(local.settings, {
      token     = token
      advertise = lookup(var.advertise, name, null)
    }))
  }
}
