variable "region" {
  description = "The region of the edges."
  type        = string
}

variable "instances" {
  description = "How many edges the region has. They are called REGION-1, REGION-2 and so on."
  type        = number
  default     = 1
  validation {
    condition     = var.instances >= 0 && var.instances <= 100 && floor(var.instances) == var.instances
    error_message = "A region has 0 to 100 edges."
  }
}

variable "program" {
  description = "Where machines fetch the program, and its SHA-256 (`sha256sum sallyport`). Set one of `program`, `apt` and `installed`."
  type = object({
    url    = string
    sha256 = string
  })
  default = null
}

variable "apt" {
  description = "The apt repository of a release, and its key in OpenPGP, armored."
  type = object({
    url       = string
    key       = string
    suite     = optional(string)
    component = optional(string)
    version   = optional(string)
  })
  default = null
}

variable "installed" {
  description = "Whether the image of the machines has the program."
  type        = bool
  default     = null
}

variable "advertise" {
  description = "The addresses at which clients and other edges reach edges, by name: HOST:PORT. The outgoing address of a machine, port 443, when absent."
  type        = map(string)
  default     = {}
}

variable "environment" {
  description = "More settings of the edges, by the names of their variables: { SALLYPORT_TRUST_PROXY = \"192.0.2.0/24\" }."
  type        = map(string)
  default     = {}
}

variable "anycast_allow" {
  description = "The prefixes that the edges may announce by BGP. With any, the machines get BIRD."
  type        = list(string)
  default     = []
}

variable "more" {
  description = "Further parts of the user data: texts that begin with #cloud-config or #!."
  type        = list(string)
  default     = []
}

variable "token_minutes" {
  description = "How long a machine may take from `terraform apply` until it joins."
  type        = number
  default     = 60
}

variable "ephemeral_outputs" {
  description = "Leave it alone. Terraform takes an output as ephemeral only if a value that is ephemeral as a whole went into it."
  type        = bool
  default     = true
  ephemeral   = true
}
