# Eight edges on four sites announce one prefix. One more on each site is a number: -var instances=3.

terraform {
  required_version = ">= 1.11"
  required_providers {
    sallyport = {
      source = "sallyport.dev/sallyport/sallyport"
    }
  }
}

variable "program" {
  description = "Where machines fetch the program, and its SHA-256."
  type        = object({ url = string, sha256 = string })
}

variable "prefix" {
  description = "Your prefix."
  type        = string
  default     = "198.51.100.0/24"
}

variable "sites" {
  description = "The sites, and the router of each."
  type        = map(object({ router = string, router_as = number }))
  default = {
    ap = { router = "192.0.2.1", router_as = 64500 }
    eu = { router = "192.0.2.65", router_as = 64500 }
    sa = { router = "192.0.2.129", router_as = 64500 }
    us = { router = "192.0.2.193", router_as = 64500 }
  }
}

variable "instances" {
  description = "How many edges each site has."
  type        = number
  default     = 2
}

module "fleet" {
  source = "../../modules/anycast-fleet"

  sites     = var.sites
  instances = var.instances
  prefixes  = [var.prefix]
  local_as  = 64501
  program   = var.program
}

output "edges" {
  value = module.fleet.sites
}
