# Edges of one region: a name and a join token for each, and the user data that makes a fresh machine this edge.

locals {
  names   = [for number in range(var.instances) : format("%s-%d", var.region, number + 1)]
  anycast = length(var.anycast_allow) > 0

  # The user data for one machine, which the module completes.
  base = yamldecode(file("${path.module}/../../../cloud-init/${local.anycast ? "anycast-edge" : "edge"}.yaml"))

  environment = merge(
    { SALLYPORT_REGION = var.region },
    local.anycast ? {
      SALLYPORT_ANYCAST_ALLOW = join(",", var.anycast_allow)
      SALLYPORT_BIRD          = "/run/bird/bird.ctl"
      SALLYPORT_BIRD_CONFIG   = "/etc/bird/sallyport/sallyport.conf"
    } : {},
    var.environment,
  )
  install = "SALLYPORT_URL=${var.program.url}\nSALLYPORT_SHA256=${var.program.sha256}\n"
}

resource "sallyport_edge" "this" {
  for_each      = toset(local.names)
  name          = each.key
  region        = var.region
  token_minutes = var.token_minutes
}

# The join token in the run that makes the edge. Later runs neither get it nor make another one.
ephemeral "sallyport_initial_secret" "this" {
  for_each = sallyport_edge.this
  id       = each.value.id
}

locals {
  contents = {
    for name in local.names : name => {
      "/etc/sallyport/install.env" = local.install
      "/etc/sallyport/edge.env" = join("\n", concat(
        [for key, value in merge(local.environment,
          contains(keys(var.advertise), name) ? { SALLYPORT_ADVERTISE = var.advertise[name] } : {}
        ) : "${key}=${value}"],
        ["SALLYPORT_JOIN=${coalesce(ephemeral.sallyport_initial_secret.this[name].secret, "given in another run")}", ""],
      ))
    }
  }

  own = {
    for name, contents in local.contents : name => join("", ["#cloud-config\n", yamlencode(merge(local.base, {
      write_files = [for file in local.base.write_files : merge(file, { content = lookup(contents, file.path, file.content) })]
    }))])
  }
}
