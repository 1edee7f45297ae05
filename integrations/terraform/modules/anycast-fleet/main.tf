# Edges on several sites that announce the same prefixes by BGP: what they announce, to whom, and their user data.

resource "sallyport_anycast_prefix" "this" {
  for_each  = var.prefixes
  prefix    = each.key
  min_sites = var.min_sites
}

resource "sallyport_anycast_peer" "this" {
  for_each  = var.sites
  name      = "router-${each.key}"
  place     = "region:${each.key}"
  address   = each.value.router
  remote_as = each.value.router_as
  local_as  = var.local_as
  role      = each.value.role
  bfd       = each.value.bfd ? {} : null
}

module "edges" {
  source   = "../edges"
  for_each = var.sites

  region        = each.key
  instances     = coalesce(each.value.instances, var.instances)
  program       = var.program
  apt           = var.apt
  installed     = var.installed
  advertise     = var.advertise
  anycast_allow = var.prefixes
  more          = var.more
}
