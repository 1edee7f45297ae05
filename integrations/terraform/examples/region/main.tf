# The edges of a region. Growing is a number: -var instances=4.

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

variable "region" {
  description = "The region."
  type        = string
  default     = "eu"
}

variable "instances" {
  description = "How many edges the region has."
  type        = number
  default     = 2
}

module "edges" {
  source = "../../modules/edges"

  region    = var.region
  instances = var.instances
  program   = var.program
}

output "edges" {
  value = module.edges.names
}
