# A service on two machines in each of two regions, under one public name. Growing is a number: -var instances=4.

terraform {
  required_version = ">= 1.11"
  required_providers {
    sallyport = {
      source = "sallyport.dev/sallyport/sallyport"
    }
  }
}

variable "api" {
  description = "The address of the API, as machines reach it."
  type        = string
}

variable "ca" {
  description = "The root certificate of the API in PEM, where machines do not trust it anyway."
  type        = string
  default     = null
}

variable "program" {
  description = "Where machines fetch the program, and its SHA-256."
  type        = object({ url = string, sha256 = string })
}

variable "regions" {
  description = "The regions of the cloud."
  type        = set(string)
  default     = ["eu", "us"]
}

variable "instances" {
  description = "How many machines each region has."
  type        = number
  default     = 2
}

resource "sallyport_socket" "gif" {
  name = "gif"
  type = "http"
}

module "origins" {
  source   = "../../modules/origins"
  for_each = var.regions

  name      = "gif-${each.key}"
  instances = var.instances
  socket_id = sallyport_socket.gif.id
  port      = 8000
  api       = var.api
  ca        = var.ca
  program   = var.program
  more      = [file("${path.module}/service.yaml")]
}

output "url" {
  value = sallyport_socket.gif.url
}

output "host" {
  value = sallyport_socket.gif.dns_name
}
